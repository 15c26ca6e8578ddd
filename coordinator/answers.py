"""Completes waiting requests, not more in a turn of the event loop than it has room for.

An answered request continues in a task of its own in the next turn, which encodes and sends its answer. A
thousand requests that are answered at once, because the replicas have caught up or the leadership is lost,
would hold the event loop for long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.turns import Turns

_LANE = "coordinator answers"


class Waiter(Protocol):
    """Waits for an answer: a future on which a task waits, or a request that answers by itself."""

    def done(self) -> bool: ...
    def set_result(self, result: object, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Answers:
    """A queue in front of the futures of waiting requests; empty most of the time."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._queue: deque[tuple[Waiter, object]] = deque()

    def give(self, future: Waiter, answer: object) -> None:
        """Complete ``future``; with an exception if ``answer`` is one."""
        if self._queue:
            self._queue.append((future, answer))
        elif self._turns.has_room():
            self._complete(future, answer)
        else:
            self._queue.append((future, answer))
            self._turns.defer(self._go_on, _LANE)

    def fail(self, future: Waiter, code: ErrorCode) -> None:
        self.give(future, KafkaError(code))

    def flush(self) -> None:
        """Complete all queued futures now: the coordinator is stopping."""
        while self._queue:
            self._complete(*self._queue.popleft())

    def _go_on(self) -> None:
        while self._queue:
            self._complete(*self._queue.popleft())
            if not self._turns.has_room():
                break
        if self._queue:
            self._turns.defer(self._go_on, _LANE)

    def _complete(self, future: Waiter, answer: object) -> None:
        if future.done():
            return
        if isinstance(future, asyncio.Future):
            self._turns.spend(steps=1)
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
