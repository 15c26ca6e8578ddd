"""The client's network port on plain blocking sockets, and a driver that runs its coroutines without a loop.

Every method here is a coroutine that never suspends, so a client coroutine over this adapter runs to its
end in one step. Not for use inside an event loop: it would block it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from pykraft.kafka_client.network import Channel
from pykraft.runtime.address import Address

T = TypeVar("T")

RECEIVE_BUFFER_BYTES = 1 << 20


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a client coroutine to its end on this thread."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a coroutine over the blocking network suspended")


class BlockingChannel:
    """A connected socket. One frame at a time, in order."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        self._set_timeout(deadline_ms)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        size = int.from_bytes(self._read_exactly(4, deadline_ms), "big", signed=True)
        if not 0 <= size <= max_bytes:
            raise ConnectionError(
                f"the peer announced a frame of {size} bytes (at most {max_bytes} expected)"
            )
        return self._read_exactly(size, deadline_ms)

    def close(self) -> None:
        self._socket.close()

    def _read_exactly(self, size: int, deadline_ms: int) -> memoryview:
        view = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            self._set_timeout(deadline_ms)
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            filled += count
        return view

    def _set_timeout(self, deadline_ms: int) -> None:
        left_ms = deadline_ms - _now_ms()
        if left_ms <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left_ms / 1000)


class BlockingNetwork:
    """:class:`~pykraft.kafka_client.network.Network` on the calling thread."""

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        left_ms = deadline_ms - _now_ms()
        if left_ms <= 0:
            raise TimeoutError("no time left to connect")
        connected = socket.create_connection((address.host, address.port), timeout=left_ms / 1000)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return BlockingChannel(connected)

    async def sleep(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)  # noqa: ASYNC251 - this network blocks, and says so

    def now_ms(self) -> int:
        return _now_ms()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()  # nothing else runs before a coroutine has ended


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
