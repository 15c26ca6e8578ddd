"""A bare connection to a node: it sends anything, and never retries."""

import contextlib
import socket
import struct
from typing import Self, TypeVar

from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.runtime.address import Address
from pykraft.testing.processes.waits import PATIENCE_S

M = TypeVar("M", bound=Message)


def decode_answer(response_class: type[M], version: int, frame: bytes) -> M:
    """The body of a whole answer."""
    _, body_at = decode_response_header(response_class.API_KEY, version, frame)
    return response_class.decode(frame[body_at:], version)


class WireClient:
    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection((address.host, address.port), PATIENCE_S)

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
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def call(self, request: Request[M], version: int) -> M:
        """Send a request and decode its answer, whole."""
        self.send_frame(encode_request(request, version, 7, "test"))
        frame = self.receive()
        assert frame is not None, f"connection closed instead of an answer to {request}"
        return decode_answer(request.RESPONSE, version, frame)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data
