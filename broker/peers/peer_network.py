"""The client's network port on a node's connections (:mod:`~pykraft.runtime.network.tcp`)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from pykraft.kafka_protocol.framing import SIZE_BYTES, FramingError, take_frames
from pykraft.runtime.address import Address
from pykraft.runtime.clock import Clock
from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime, connect

MAX_RESPONSE_BYTES = 64 << 20

if TYPE_CHECKING:
    from pykraft.kafka_client.network import Channel


class _Frames:
    """A :class:`~pykraft.runtime.network.tcp.StreamSession`: the frames that have arrived."""

    def __init__(self, link: StreamConnection) -> None:
        self.link = link
        self.need_bytes = SIZE_BYTES
        self.stalled = False
        self.lane: object = None
        self._arrived: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._is_lost = False

    def receive(self, data: memoryview) -> int:
        try:
            position, self.need_bytes = take_frames(data, MAX_RESPONSE_BYTES, self._take)
        except FramingError:
            self.link.close()
            return len(data)
        return position

    def _take(self, frame: memoryview) -> None:
        self._arrived.append(bytes(frame))
        self._news.set()

    def connection_lost(self) -> None:
        self._is_lost = True
        self._news.set()

    def check(self) -> None:
        """:class:`OSError` if the connection is lost."""
        if self._is_lost:
            raise ConnectionResetError("the peer closed the connection")

    async def next(self) -> bytes:
        while not self._arrived:
            self.check()
            self._news.clear()
            await self._news.wait()
        return self._arrived.popleft()


class _PeerChannel:
    """A :class:`~pykraft.kafka_client.network.Channel`."""

    def __init__(self, frames: _Frames, clock: Clock) -> None:
        self._frames = frames
        self._clock = clock

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        self._frames.check()
        self._frames.link.write([len(frame).to_bytes(SIZE_BYTES, "big") + frame], urgent=True)

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        async with _until(deadline_ms, self._clock):
            return memoryview(await self._frames.next())

    def close(self) -> None:
        self._frames.link.close()


class PeerNetwork:
    """A :class:`~pykraft.kafka_client.network.Network`."""

    def __init__(self, runtime: StreamRuntime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        async with _until(deadline_ms, self._clock):
            _, frames = await connect(self._runtime, address.host, address.port, _Frames)
        assert isinstance(frames, _Frames)
        return _PeerChannel(frames, self._clock)

    async def sleep(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()


def _until(deadline_ms: int, clock: Clock) -> asyncio.Timeout:
    return asyncio.timeout(max(deadline_ms - clock.monotonic_ms(), 0) / 1000)
