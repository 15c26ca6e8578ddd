"""Limits for large requests: few are worked on at a time, and they wait for logs in slices.

The objects of one request may take 30 MB while its handler looks at them. The rest is decided in
:mod:`.request_server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

from pykraft.broker.serving.api import Api
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.connection import Holdable
from pykraft.kafka_protocol.ids import Uuid
from pykraft.runtime.memory import YoungCollectionsOnly
from pykraft.runtime.slices import Slices

MOST_LARGE = 4
_YOUNG_ONLY_S = 10
_LOOKED_UP_AT_ONCE = 500
"""Partitions in one slice: half a millisecond."""

Asked = tuple[str | None, Uuid | None, int]
"""A partition: the name or the id of its topic, and its index."""

HoldUntilOpen = Callable[[Holdable, Iterable[Asked]], bool]
"""Holds a connection with its current frame, or a large request, if it has to wait for one of these logs,
given by topic name or id and index; returns whether it does
(:meth:`~pykraft.broker.replicas.replica_manager.ReplicaManager.hold_until_open`).
"""


class LargeRequests:
    """Those of one server. ``few``: taken by each that is worked on."""

    def __init__(self, slices: Slices, hold_until_open: HoldUntilOpen | None) -> None:
        self.few = asyncio.Semaphore(MOST_LARGE)
        self._slices = slices
        self._hold = hold_until_open

    @staticmethod
    def collect_young_only() -> YoungCollectionsOnly:
        """Until it is ended, but not for as long as a handler may wait."""
        young_only = YoungCollectionsOnly()
        asyncio.get_running_loop().call_later(_YOUNG_ONLY_S, young_only.end)
        return young_only

    async def until_open(self, asked: Callable[[], Iterable[Asked]]) -> None:
        """Wait until this broker leads the partitions that it is about to lead."""
        held = _HeldRequest()
        while self._hold is not None and await self._slices.result(
            _hold_in_slices(self._hold, held, asked())
        ):
            await held.retried()


def partitions_of(api: Api[Any, Any, Any], request: Message) -> Iterator[Asked]:
    """The partitions of a request that its broker must lead."""
    for name, index in () if api.partitions is None else api.partitions(request):
        yield name, None, index


class _HeldRequest:
    """A request that waits for a log (:class:`~pykraft.kafka_protocol.connection.Holdable`)."""

    def __init__(self) -> None:
        self.held_since_ms: int | None = None
        self._retried: asyncio.Future[None] | None = None

    def hold_frame(self, now_ms: int) -> None:
        self._retried = asyncio.get_running_loop().create_future()
        if self.held_since_ms is None:
            self.held_since_ms = now_ms

    def retry_frame(self) -> None:
        if self._retried is not None and not self._retried.done():
            self._retried.set_result(None)

    async def retried(self) -> None:
        assert self._retried is not None, "it was held"
        await self._retried


def _hold_in_slices(
    hold: HoldUntilOpen, held: Holdable, asked: Iterable[Asked]
) -> Generator[None, None, bool]:
    partitions = iter(asked)
    while some := list(islice(partitions, _LOOKED_UP_AT_ONCE)):
        if hold(held, some):
            return True
        yield
    return False
