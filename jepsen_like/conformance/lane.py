"""A plain connection with at most one request under way."""

import select
import socket
import struct
import time
from typing import Final

from pykraft.runtime.address import Address

ANSWER_TIMEOUT_S: Final = 30.0


class Lane:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket = self._connect()
        self._buffer = bytearray()
        self.step: int | None = None
        """The step that waits for its answer here."""
        self._sent = b""

    def _connect(self) -> socket.socket:
        made = socket.create_connection((self._address.host, self._address.port), ANSWER_TIMEOUT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        self._sent = struct.pack(">i", len(frame)) + frame
        self._socket.sendall(self._sent)

    def send_again(self) -> None:
        self._socket.sendall(self._sent)

    def receive(self, timeout_s: float) -> bytes | None:
        """A frame; None if none came in time. ConnectionError if the other side hung up."""
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self._buffer) >= 4:
                size = struct.unpack_from(">i", self._buffer)[0]
                if len(self._buffer) >= 4 + size:
                    frame = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return frame
            left_s = deadline - time.monotonic()
            if not select.select([self._socket], [], [], max(left_s, 0))[0]:
                return None
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the connection was closed")
            self._buffer += more

    def reconnect(self) -> None:
        self._socket.close()
        self._buffer.clear()
        self._socket = self._connect()

    def close(self) -> None:
        self._socket.close()
