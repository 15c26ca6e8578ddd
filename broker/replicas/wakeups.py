"""Wakes waiting fetches and coordinators, but never from within the change that causes it.

Wake-ups of fetches that wait for data and of coordinators that follow high watermarks are collected while a
request is handled and run when it is done, or in the next turn of the event loop if no request caused them;
so many causes lead to one evaluation. A turn that has no room left leaves the rest to later ones. All
deadlines share one timer. Decides when a fetch is woken, not what it then does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.partition.purgatory import Deadlines, Waiting
from pykraft.broker.replicas.ports import TopicCoordinator
from pykraft.runtime.clock import Clock
from pykraft.runtime.turns import Turns

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

_LANE = "wakeups"


class Wakeable(Protocol):
    """A fetch that waits for data."""

    def evaluate(self) -> None: ...


class Wakeups:
    """The wake-ups of one broker.

    ``turns``: the budget of a turn of the event loop. ``coordinators`` are told when a high watermark of
    their topic has moved.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        turns: Turns,
        clock: Clock,
        coordinators: Mapping[str, TopicCoordinator],
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._clock = clock
        self._coordinators = coordinators
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._woken: dict[Wakeable, None] = {}
        self._moved: dict[Partition, None] = {}
        self._in_request = False
        self._is_scheduled = False
        self._runs_later = False
        self._expires_later = False
        self.deadlines = Deadlines()

    def close(self) -> None:
        """No further deadline fires; :meth:`run` still evaluates the fetches that are already woken."""
        if self._timer is not None:
            self._timer.cancel()

    def begin_request(self) -> None:
        """Wake-ups wait until :meth:`end_request`."""
        self._in_request = True

    def end_request(self) -> None:
        self._in_request = False
        if self._woken or self._moved:
            self.run()

    def wake(self, waiting: Wakeable) -> None:
        """Evaluate ``waiting`` soon."""
        self._woken[waiting] = None
        self._schedule()

    def high_watermark_moved(self, partition: Partition) -> None:
        """Tell the coordinator of its topic soon."""
        if partition.topic in self._coordinators:
            self._moved[partition] = None
            self._schedule()

    def _schedule(self) -> None:
        if not self._in_request and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Tell coordinators about moved high watermarks and evaluate the woken fetches.

        Evaluates as many as this turn has room for; the rest follows in the next turn.
        """
        self._is_scheduled = False
        while self._moved or self._woken:
            try:
                if self._moved:
                    self._notify_coordinator()
                elif self._turns.has_room():
                    waiting = next(iter(self._woken))
                    del self._woken[waiting]
                    waiting.evaluate()
                else:
                    self._run_later()
                    return
            except BaseException:
                self._schedule()
                raise

    def _run_later(self) -> None:
        """Defer the rest, but only once: many requests may end in one turn that has no room."""
        self._is_scheduled = True
        if not self._runs_later:
            self._runs_later = True
            self._turns.defer(self._run_deferred, _LANE)

    def _run_deferred(self) -> None:
        self._runs_later = False
        self.run()

    def _notify_coordinator(self) -> None:
        partition = next(iter(self._moved))
        del self._moved[partition]
        coordinator = self._coordinators[partition.topic]
        coordinator.on_high_watermark(partition.index, partition.high_watermark)

    def wait_until(self, operation: Waiting, deadline_ms: int) -> None:
        """Expire ``operation`` at ``deadline_ms`` (monotonic) unless it is removed from ``deadlines``."""
        self.deadlines.add(operation, deadline_ms)
        self._arm_timer()

    def _arm_timer(self) -> None:
        due_ms = self.deadlines.next_ms
        if due_ms is None or self._expires_later or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(0, due_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._expires_later = False
        try:
            is_done = self.deadlines.expire(self._clock.monotonic_ms(), self._turns.has_room)
        except BaseException:
            self._arm_timer()
            raise
        if is_done:
            self._arm_timer()
        else:
            self._expires_later = True
            self._turns.defer(self._expire, _LANE)
