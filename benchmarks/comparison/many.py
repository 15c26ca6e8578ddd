"""Many connections at once from one thread, each with at most one request in flight."""

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Iterator

from comparison.frames import ANSWER_TIMEOUT_S

_RECEIVE_BYTES = 64 << 10


class Peer:
    """One connection. ``number`` is its place among the others."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, frame: bytes | bytearray) -> None:
        self.socket.sendall(frame)

    def read(self) -> bytes | None:
        """One answer without its size, if it is whole; to be called when there is something to read."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            return None
        answer, self._received = self._received[4:], b""
        return answer


class Peers:
    """All connections, and the answers as they come."""

    def __init__(self, port: int, count: int) -> None:
        self.all = [Peer(number, port) for number in range(count)]
        self._selector = selectors.DefaultSelector()
        for peer in self.all:
            self._selector.register(peer.socket, selectors.EVENT_READ, peer)

    def close(self) -> None:
        self._selector.close()
        for peer in self.all:
            peer.socket.close()

    def answers(self) -> Iterator[tuple[Peer, bytes]]:
        """Endless; TimeoutError once nothing comes for :data:`frames.ANSWER_TIMEOUT_S`."""
        while True:
            ready = self._selector.select(ANSWER_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no answer for {ANSWER_TIMEOUT_S} s")
            for key, _ in ready:
                answer = key.data.read()
                if answer is not None:
                    yield key.data, answer


@contextlib.contextmanager
def peers(port: int, count: int) -> Iterator[Peers]:
    opened = Peers(port, count)
    try:
        yield opened
    finally:
        opened.close()


def keep_asking(opened: Peers, frames: list[bytes], seconds: float) -> int:
    """Send every answered request again for so long; returns the number of answers."""
    end = time.monotonic() + seconds
    for peer in opened.all:
        peer.send(frames[peer.number])
    waiting, answered = len(opened.all), 0
    for answered, (peer, _) in enumerate(opened.answers(), start=1):  # noqa: B007
        if time.monotonic() < end:
            peer.send(frames[peer.number])
        else:
            waiting -= 1
            if not waiting:
                break
    return answered
