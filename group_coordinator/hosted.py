"""A shard with the requests that wait for it, and with its unfinished sweeps.

Holds futures and completes them; decides nothing about groups.
"""

from __future__ import annotations

import asyncio
from collections import deque

from pykraft.group_coordinator.answers import Answers, Waiter
from pykraft.group_coordinator.housekeeping import Sweep
from pykraft.group_coordinator.result import Parked, Resolution
from pykraft.group_coordinator.shard import Shard
from pykraft.kafka_protocol.errors import ErrorCode

_NEVER_MS = 2**63


class Waiting:
    """A request that is answered once the high watermark reaches ``offset``, or fails at its deadline."""

    __slots__ = ("answer", "deadline_ms", "future", "offset")

    def __init__(self, offset: int, deadline_ms: int, future: Waiter, answer: object) -> None:
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
        self.staged: list[Waiting] = []
        """Requests whose records, or those that they depend on, are not yet appended."""
        self.resolutions: list[Resolution] = []
        """What they ask for once that has happened."""
        self.flush: asyncio.Handle | None = None
        """The call that will append them."""
        self.waiting_for_lease: deque[Waiting] = deque()
        """Requests that would change a group without a record: they wait until the lease is renewed."""
        self.grown_offset = 0
        """Up to here records are counted as growth."""
        self.deleted_while_loading: set[str] = set()
        self.sweeps: deque[Sweep] = deque()
        self.sweep_from_ms = 0
        """The earliest time of the next slice: later than now only after one that could not be written."""
        self.swept_offset: int | None = None
        """The end of the last slice until it is committed: the replicas set the pace."""
        self.next_cleanup_ms = 0

    @property
    def sweep_due_ms(self) -> int:
        """When the next slice of a sweep is due; far in the future if none is."""
        return self.sweep_from_ms if self.sweeps and self.swept_offset is None else _NEVER_MS

    def release(self, high_watermark: int, now_ms: int) -> None:
        """Answer the requests that wait for ``high_watermark`` or less; those past their deadlines fail."""
        while self.waiting and self.waiting[0].offset <= high_watermark:
            waiting = self.waiting.popleft()
            if waiting.deadline_ms > now_ms:
                self._answers.give(waiting.future, waiting.answer)
            else:
                self._answers.fail(waiting.future, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def give_up_waiting(self, now_ms: int) -> None:
        """Fail the requests past their deadlines. What was decided stands, but the client must retry."""
        for queue in (self.waiting, self.waiting_for_lease):
            while queue and queue[0].deadline_ms <= now_ms:
                self._answers.fail(queue.popleft().future, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def resume_waiting_for_lease(self) -> None:
        """The lease was renewed: resume the requests that waited for it."""
        while self.waiting_for_lease:
            self._answers.give(self.waiting_for_lease.popleft().future, None)

    def drop(self) -> None:
        if self.load_task is not None:
            self.load_task.cancel()
        for future in self.parked.values():
            self._answers.fail(future, ErrorCode.NOT_COORDINATOR)
        if self.flush is not None:
            self.flush.cancel()
        for waiting in [*self.waiting, *self.staged, *self.waiting_for_lease]:
            self._answers.fail(waiting.future, ErrorCode.NOT_COORDINATOR)
        self.parked.clear()
        self.waiting.clear()
        self.staged.clear()
        self.waiting_for_lease.clear()
