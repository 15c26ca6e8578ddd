"""A bare connection to a node: it sends anything, and never retries."""

import contextlib
import socket
import struct
from typing import Final, Self, TypeVar

from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.runtime.address import Address
from pykraft.testing.processes.waits import PATIENCE_S

M = TypeVar("M", bound=Message)

_BUFFER_BYTES: Final = 1 << 16


def frame_of(request: Message, version: int, client_id: str = "bench") -> bytes:
    """A request with its size."""
    body = encode_request(request, version, 1, client_id)
    return struct.pack(">i", len(body)) + body


def decode_answer(response_class: type[M], version: int, frame: bytes | memoryview) -> M:
    """The body of a whole answer."""
    _, body_at = decode_response_header(response_class.API_KEY, version, frame)
    return response_class.decode(bytes(frame[body_at:]), version)


class WireClient:
    def __init__(self, address: Address, client_id: str = "test") -> None:
        self.socket = socket.create_connection((address.host, address.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Unlike settimeout() they add no system call to each one.
        for timeout in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, timeout, struct.pack("ll", int(PATIENCE_S), 0))
        self._client_id = client_id
        self._buffer = bytearray(_BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        # The node may have closed the connection in the middle.
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """One frame; None once the node has closed the connection. TimeoutError if neither happens."""
        frame = self._frame()
        return None if frame is None else bytes(frame)

    def answer(self) -> memoryview:
        """The same, valid until the next call. ConnectionError if the node has closed the connection."""
        frame = self._frame()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        return frame

    def call(self, request: Request[M], version: int) -> M:
        """Send a request and decode its answer, whole."""
        self.send(frame_of(request, version, self._client_id))
        return decode_answer(request.RESPONSE, version, self.answer())

    def _frame(self) -> memoryview | None:
        size = self._fill(4)
        return None if size is None else self._fill(struct.unpack(">i", size)[0])

    def _fill(self, count: int) -> memoryview | None:
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        view = memoryview(self._buffer)[:count]
        done = 0
        while done < count:
            try:
                received = self.socket.recv_into(view[done:])
            except ConnectionResetError:
                return None
            except BlockingIOError:
                raise TimeoutError("no answer, and the connection is open") from None
            if not received:
                return None
            done += received
        return view
