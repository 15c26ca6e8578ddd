"""A client's end of one connection to a fuzzed node."""

import asyncio
import struct
from typing import Final

KEPT_BYTES: Final = 64 << 10
"""The most of an answer; a longer one is counted, and not read."""


class FuzzConnection(asyncio.Protocol):
    """A client's end of one connection. Of each answer it keeps the beginning only."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._size = self._left = 0
        self._changed = asyncio.Event()
        self.is_closed = False
        self.answers: list[tuple[bytes, int]] = []
        """The beginning of each answer, and its size in bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                take = min(self._left, len(view) - at)
                room = KEPT_BYTES - len(self._head)
                if room > 0:
                    self._head += view[at : at + min(take, room)]
                self._left -= take
                at += take
                if not self._left:
                    self.answers.append((bytes(self._head), self._size))
                    self._head.clear()
                    self._changed.set()
                continue
            take = min(4 - len(self._head), len(view) - at)
            self._head += view[at : at + take]
            at += take
            if len(self._head) == 4:
                (self._size,) = struct.unpack(">i", self._head)
                self._left = self._size
                self._head.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()

    def send(self, *frames: bytes) -> None:
        assert self._transport is not None
        for frame in frames:
            self._transport.write(struct.pack(">i", len(frame)))
            self._transport.write(frame)

    async def until(self, count: int, patience_s: float) -> bool:
        """Wait for so many answers, or for the end of the connection; False if neither comes in time."""
        try:
            async with asyncio.timeout(patience_s):
                while len(self.answers) < count and not self.is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()
