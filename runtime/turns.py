"""What one turn of the event loop may do for clients: the budget that everything in a process shares.

Raft, the heartbeats of brokers and all clients live on one event loop. Without a bound a thousand clients
that commit at once hold it for most of a second, and bulk produce holds it long enough for an election. So
whoever works for clients asks here before the next piece of work, and queues when the turn has had enough:
then everything else on the loop gets its turn, too. A turn is bounded in bytes (what is read and sent), in
time (what is done on the spot) and in steps (what is only started, and done in the next turn by a task of
its own).

Who queues waits in a lane, and the lanes are served in rotation. A thousand commits that wait are one lane,
so a request of another kind waits for a few of them and not for all. Answers that are ready go first, for
half of the turn at most. Never touches a socket or a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

TURN_BYTES = 1024 * 1024
TURN_US = 4_000
TURN_STEPS = 8
RESUMED_PER_TURN = 2
"""Of the connections that move bulk data; each moves a good part of :data:`TURN_BYTES`."""

BULK: Final = "bulk"
"""The lane of connections that have used their share of bytes."""

RESUMED: Final = "resumed"
"""The lane of connections that were stopped for another reason, which is gone."""

OUTPUT: Final = "output"
"""The lane of connections that have an answer to send."""


class Turns(Protocol):
    """What those who work for clients need of the budget."""

    def has_room(self) -> bool:
        """Whether the next piece of work may be done in this turn."""
        ...

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        """Account for bytes moved or tasks started; False once the turn has moved enough bytes."""
        ...

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        """Call ``resume`` in a later turn, after those who already wait in its lane."""
        ...


class EndlessTurn:
    """For who shares the event loop with nobody."""

    def has_room(self) -> bool:
        return True

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        return True

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        raise AssertionError("there is always room")


class TurnBudget:
    """:class:`Turns` of one event loop. ``now_us`` is monotonic; a turn begins with the first who asks."""

    __slots__ = (
        "_began_us",
        "_call_soon",
        "_is_open",
        "_lanes",
        "_now_us",
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
        """As :meth:`has_room`, for what ends work that was begun: however much was begun in this turn."""
        if not self._is_open:
            self._open()
        return self._now_us() - self._began_us < self.turn_us

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
        """Answers first, for half of the turn at most; then one from each other lane in turn, at least one.

        Answers go on where nobody else waits.
        """
        while OUTPUT in self._lanes and self._now_us() - self._began_us < self.turn_us // 2:
            self._take(OUTPUT)()
        # An answer that took longer, with a slow disk, did so at its own cost: who is resumed asks for room.
        self._began_us = max(self._began_us, self._now_us() - self.turn_us // 2)
        bulk = 0
        while (lane := self._next_lane(bulk)) is not None:
            bulk += lane == BULK
            self._take(lane)()
            if not self.has_room():
                return

    def _next_lane(self, bulk: int) -> object | None:
        """Whose turn it is after ``bulk`` connections with bulk data."""
        last = None
        for lane in self._lanes:
            if lane == OUTPUT:
                last = lane
            elif lane != BULK or bulk < RESUMED_PER_TURN:
                return lane
        return last

    def _take(self, lane: object) -> Callable[[], None]:
        """The first who waits in ``lane``, which is the last in the rotation then."""
        queue = self._lanes.pop(lane)
        resume = queue.popleft()
        if queue:
            self._lanes[lane] = queue
        return resume
