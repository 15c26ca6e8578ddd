"""A shard with those who wait for it, and with what it still has to clean up.

Holds futures and gives answers; decides nothing about groups.
"""

from __future__ import annotations

import asyncio
from collections import deque

from pykraft.group_coordinator.answers import Answers
from pykraft.group_coordinator.housekeeping import Sweep
from pykraft.group_coordinator.result import Parked
from pykraft.group_coordinator.shard import Shard
from pykraft.kafka_protocol.errors import ErrorCode

_NEVER_MS = 2**63


class Waiting:
    """Somebody to be answered once the high watermark reaches ``offset``, or told off at the deadline."""

    __slots__ = ("answer", "deadline_ms", "future", "offset")

    def __init__(self, offset: int, deadline_ms: int, future: asyncio.Future[object], answer: object) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.future = future
        self.answer = answer


class HostedShard:
    def __init__(self, shard: Shard, answers: Answers) -> None:
        self.shard = shard
        self._answers = answers
        self.load_task: asyncio.Task[None] | None = None
        self.parked: dict[Parked, asyncio.Future[object]] = {}
        self.waiting: deque[Waiting] = deque()
        self.at_the_door: deque[Waiting] = deque()
        """Those whose requests would move a group without a record: until the lease is back."""
        self.deleted_while_loading: set[str] = set()
        self.sweeps: deque[Sweep] = deque()
        self.sweep_from_ms = 0
        """When the next slice of a sweep may be tried: later than now only after one that was not written."""
        self.swept_offset: int | None = None
        """Where the last slice ends, until that is committed: the replicas set the pace."""
        self.next_cleanup_ms = 0

    @property
    def sweep_due_ms(self) -> int:
        """When the next slice of a sweep is due; infinitely late if none is."""
        return self.sweep_from_ms if self.sweeps and self.swept_offset is None else _NEVER_MS

    def release(self, high_watermark: int, now_ms: int) -> None:
        """Answer those who waited for no more than ``high_watermark``, and not for too long."""
        while self.waiting and self.waiting[0].offset <= high_watermark:
            waiting = self.waiting.popleft()
            if waiting.deadline_ms > now_ms:
                self._answers.give(waiting.future, waiting.answer)
            else:
                self._answers.fail(waiting.future, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def give_up_waiting(self, now_ms: int) -> None:
        """The replicas, or the controller, take too long. What was decided stands, but the client must ask
        again."""
        for queue in (self.waiting, self.at_the_door):
            while queue and queue[0].deadline_ms <= now_ms:
                self._answers.fail(queue.popleft().future, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def open_the_door(self) -> None:
        """The lease is back: who waited for it is dealt with now."""
        while self.at_the_door:
            self._answers.give(self.at_the_door.popleft().future, None)

    def drop(self) -> None:
        if self.load_task is not None:
            self.load_task.cancel()
        for future in self.parked.values():
            self._answers.fail(future, ErrorCode.NOT_COORDINATOR)
        for waiting in [*self.waiting, *self.at_the_door]:
            self._answers.fail(waiting.future, ErrorCode.NOT_COORDINATOR)
        self.parked.clear()
        self.waiting.clear()
        self.at_the_door.clear()
