"""The client's network port on asyncio streams."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from pykraft.kafka_client.network import Channel, Event, Future, Task
from pykraft.runtime.address import Address


class AsyncioChannel:
    """A pair of streams. One task at a time may send, and one receive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        async with _until(deadline_ms):
            await self._writer.drain()

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        try:
            async with _until(deadline_ms):
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                if not 0 <= size <= max_bytes:
                    raise ConnectionError(
                        f"the peer announced a frame of {size} bytes (at most {max_bytes} expected)"
                    )
                return memoryview(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the peer closed the connection") from None

    def close(self) -> None:
        self._writer.close()


class AsyncioNetwork:
    """:class:`~pykraft.kafka_client.network.ConcurrentNetwork` on the running event loop."""

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        async with _until(deadline_ms):
            reader, writer = await asyncio.open_connection(address.host, address.port, limit=1 << 20)
        return AsyncioChannel(reader, writer)

    async def sleep(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)

    def now_ms(self) -> int:
        # A microsecond more: a timer set for a reading must not fire before it by a rounding error.
        return int(asyncio.get_running_loop().time() * 1000 + 1e-3)

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        return task

    def event(self) -> Event:
        return asyncio.Event()

    def future(self) -> Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def wait(self, event: Event, deadline_ms: int | None = None) -> None:
        assert isinstance(event, asyncio.Event)
        with suppress(TimeoutError):
            async with _until(deadline_ms):
                await event.wait()


def _report(task: asyncio.Task[None]) -> None:
    """Background work ends only by cancellation; any other end is a bug and is reported at once."""
    if not task.cancelled() and (error := task.exception()) is not None:
        message = "background work of a client failed"
        task.get_loop().call_exception_handler({"message": message, "exception": error, "task": task})


def _until(deadline_ms: int | None) -> asyncio.Timeout:
    return asyncio.timeout_at(None if deadline_ms is None else deadline_ms / 1000)
