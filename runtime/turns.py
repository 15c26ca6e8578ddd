"""The shared budget of a process for client work in one turn of the event loop.

Raft, the heartbeats of brokers and all clients share one event loop. Without a limit, a thousand clients that
commit at once hold it for most of a second, and bulk produce holds it long enough for an election. So code
that works for clients asks here before the next piece of work, and queues when the budget of the turn is used
up: then everything else on the loop runs, too. A turn is limited in bytes (read and sent), in time (for work
done in the turn) and in steps (requests that go through a handler of their own: it may go on in a task).

Queued work waits in a lane, and the lanes are served in rotation. A thousand waiting commits are one lane, so
a request of another kind waits for a few of them and not for all. Responses that are ready are sent first,
for half of the turn at most. This file never touches a socket or a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

TURN_BYTES = 1024 * 1024
TURN_US = 4_000
TURN_STEPS = 8
SHARE_US = 1_000
"""The share of a turn for one work that was resumed and can stop anywhere."""
RESUMED_PER_TURN = 2
"""Connections with bulk data that are resumed per turn; each moves a large part of :data:`TURN_BYTES`."""

BULK: Final = "bulk"
"""The lane of connections that have used their share of bytes."""

RESUMED: Final = "resumed"
"""The lane of connections that were paused for another reason, which no longer applies."""

OUTPUT: Final = "output"
"""The lane of connections that have a response to send."""


class Turns(Protocol):
    """The part of the budget that code working for clients needs."""

    def has_room(self) -> bool:
        """Whether the next piece of work may be done in this turn."""
        ...

    def has_time(self) -> bool:
        """As :meth:`has_room`, for finishing work that was started: does not count the steps of this turn."""
        ...

    def has_share(self) -> bool:
        """Whether the work that was resumed last may go on before another is."""
        ...

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        """Account for bytes moved or tasks started; False once the turn has moved enough bytes."""
        ...

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        """Call ``resume`` in a later turn, after everything that already waits in its lane."""
        ...


class UnlimitedTurn:
    """For code that has the event loop to itself."""

    def has_room(self) -> bool:
        return True

    def has_time(self) -> bool:
        return True

    def has_share(self) -> bool:
        return True

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        return True

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        raise AssertionError("there is always room")


class TurnBudget:
    """:class:`Turns` of one event loop. ``now_us`` is monotonic; a turn begins with the first call."""

    __slots__ = (
        "_began_us",
        "_call_soon",
        "_is_open",
        "_lanes",
        "_now_us",
        "_resumed_us",
        "_spent_bytes",
        "_steps",
        "turn_bytes",
        "turn_steps",
        "turn_us",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        now_us: Callable[[], int],
        *,
        turn_bytes: int = TURN_BYTES,
        turn_us: int = TURN_US,
        turn_steps: int = TURN_STEPS,
    ) -> None:
        self._call_soon = call_soon
        self._now_us = now_us
        self._is_open = False
        self._began_us = 0
        self._resumed_us = 0
        self._spent_bytes = 0
        self._steps = 0
        self._lanes: dict[object, deque[Callable[[], None]]] = {}
        self.turn_bytes = turn_bytes
        self.turn_us = turn_us
        self.turn_steps = turn_steps

    @property
    def waiting(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def has_room(self) -> bool:
        if not self._is_open:
            self._open()
            return True
        return self._steps < self.turn_steps and self._now_us() - self._began_us < self.turn_us

    def has_time(self) -> bool:
        if not self._is_open:
            self._open()
        return self._now_us() - self._began_us < self.turn_us

    def has_share(self) -> bool:
        now_us = self._now_us()
        return now_us - self._resumed_us < SHARE_US and now_us - self._began_us < self.turn_us

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        if not self._is_open:
            self._open()
        self._steps += steps
        self._spent_bytes += count_bytes
        return self._spent_bytes < self.turn_bytes

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        self._lanes.setdefault(lane, deque()).append(resume)
        if not self._is_open:
            self._open()

    def _open(self) -> None:
        self._is_open = True
        self._began_us = self._now_us()
        self._spent_bytes = self._steps = 0
        self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_open = False
        if self._lanes:
            self._open()
            self._resume()

    def _resume(self) -> None:
        """Responses first, for half of the turn at most; then one from each other lane in rotation, at least
        one.

        Responses continue if nothing else waits.
        """
        while OUTPUT in self._lanes and self._now_us() - self._began_us < self.turn_us // 2:
            self._take(OUTPUT)()
        # A response that took longer, for example with a slow disk, has used its own share: resumed work asks
        # for room again.
        self._began_us = max(self._began_us, self._now_us() - self.turn_us // 2)
        bulk = 0
        while (lane := self._next_lane(bulk)) is not None:
            bulk += lane == BULK
            self._resumed_us = self._now_us()
            self._take(lane)()
            if not self.has_room():
                return

    def _next_lane(self, bulk: int) -> object | None:
        """The next lane after ``bulk`` connections with bulk data."""
        last = None
        for lane in self._lanes:
            if lane == OUTPUT:
                last = lane
            elif lane != BULK or bulk < RESUMED_PER_TURN:
                return lane
        return last

    def _take(self, lane: object) -> Callable[[], None]:
        """The first that waits in ``lane``; the lane becomes the last in the rotation."""
        queue = self._lanes.pop(lane)
        resume = queue.popleft()
        if queue:
            self._lanes[lane] = queue
        return resume
