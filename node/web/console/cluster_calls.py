"""The console's requests to the cluster, over Kafka's protocol, on an event loop in its own thread.

Decoding the metadata of ten thousand topics or a batch of a hundred thousand records takes long, and the
node's loop must not wait for it: it only waits for the result. There is a bound on how many pages ask at
once, on how many wait for that, and on the time of each. The thread starts with the first page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.loop_thread import LoopThread
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address

T = TypeVar("T")

CLIENT_ID: Final = "pykraft-console"


class BusyError(Exception):
    """Too many pages are being made."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """``page_ms``: all that one page asks; ``request_ms``: one operation; ``section_ms``: one of several that
    a page can do without. ``at_once`` pages ask at a time, and ``waiting`` more may wait."""

    page_ms: int = 8_000
    request_ms: int = 4_000
    section_ms: int = 1_500
    at_once: int = 4
    waiting: int = 16


class ClusterCalls:
    """Used on one event loop; :meth:`close` it there."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.at_once)
        self._asking = 0
        self._idle: dict[tuple[Address, ...], list[Admin]] = {}
        self._thread: LoopThread | None = None
        self._is_closed = False

    async def run(self, servers: Sequence[Address], work: Callable[[Admin], Awaitable[T]]) -> T:
        """The result of ``work``, which runs on the other loop, with an admin client of its own.

        :class:`BusyError`; :class:`TimeoutError` after ``page_ms``, turn included; what ``work`` raises.
        """
        if self._is_closed or self._asking >= self._limits.at_once + self._limits.waiting:
            raise BusyError
        self._asking += 1
        try:
            async with asyncio.timeout(self._limits.page_ms / 1000), self._turns:
                return await self._run(tuple(servers), work)
        finally:
            self._asking -= 1

    async def _run(self, servers: tuple[Address, ...], work: Callable[[Admin], Awaitable[T]]) -> T:
        if self._is_closed:
            raise BusyError
        if self._thread is None:
            self._thread = LoopThread("console")
            self._thread.start()
        thread, idle = self._thread, self._idle.setdefault(servers, [])
        admin = idle.pop() if idle else self._new_admin(servers)

        async def call() -> T:
            return await work(admin)

        try:
            result = await asyncio.wrap_future(thread.submit(call()))
        except asyncio.CancelledError:
            if self._is_closed:
                raise BusyError from None
            thread.loop.call_soon_threadsafe(admin.close)  # it may still be at work, and is not used again
            raise
        except BaseException:
            idle.append(admin)
            raise
        idle.append(admin)
        return result

    def _new_admin(self, servers: tuple[Address, ...]) -> Admin:
        limits = self._limits
        config = ClientConfig(
            servers,
            client_id=CLIENT_ID,
            request_timeout_ms=limits.request_ms,
            default_api_timeout_ms=limits.request_ms,
            connect_timeout_ms=min(2_000, limits.request_ms),
            unknown_topic_grace_ms=min(300, limits.section_ms),
        )
        return Admin(AsyncioNetwork(), config)

    async def close(self) -> None:
        """End what still asks; the thread and its connections are gone afterwards."""
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._end, thread)

    def _end(self, thread: LoopThread) -> None:
        with suppress(RuntimeError):
            thread.call(self._close_admins)
        thread.stop()

    def _close_admins(self) -> None:
        for idle in self._idle.values():
            for admin in idle:
                admin.close()
