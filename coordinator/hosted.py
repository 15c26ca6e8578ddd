"""A shard with the requests that wait for it.

Holds futures and completes them; decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

from pykraft.coordinator.answers import Answers, Waiter
from pykraft.coordinator.result import Result
from pykraft.coordinator.shard import Shard
from pykraft.kafka_protocol.errors import ErrorCode

P = TypeVar("P", bound="Shard[Any, Any]")
R = TypeVar("R", bound=Result)


class Waiting:
    """A request that is answered once the high watermark reaches ``offset``, or fails at its deadline."""

    __slots__ = ("answer", "deadline_ms", "future", "offset")

    def __init__(self, offset: int, deadline_ms: int, future: Waiter, answer: object) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.future = future
        self.answer = answer


class HostedShard(Generic[P, R]):
    def __init__(self, shard: P, answers: Answers) -> None:
        self.shard = shard
        self._answers = answers
        self.load_task: asyncio.Task[None] | None = None
        self.waiting: deque[Waiting] = deque()
        self.staged: list[Waiting] = []
        """Requests whose records, or those that they depend on, are not yet appended."""
        self.effects: list[R] = []
        """Results whose effects begin once what is staged has been appended."""
        self.flush: asyncio.Handle | None = None
        """The call that will append them."""
        self.waiting_for_lease: deque[Waiting] = deque()
        """Requests that would change something without a record: they wait until the lease is renewed."""
        self.grown_offset = 0
        """Up to here records are counted as growth."""

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
        """This broker no longer leads the partition: all that waits fails with NOT_COORDINATOR."""
        if self.load_task is not None:
            self.load_task.cancel()
        if self.flush is not None:
            self.flush.cancel()
        for waiting in [*self.waiting, *self.staged, *self.waiting_for_lease]:
            self._answers.fail(waiting.future, ErrorCode.NOT_COORDINATOR)
        self.waiting.clear()
        self.staged.clear()
        self.waiting_for_lease.clear()
