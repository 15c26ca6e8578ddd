"""Unavailability as clients see it: the times in which they waited for a place, and nothing was acknowledged.

A place is a partition (see ``operations.place``). It is waited for from the invocation of an operation on, or
from the last acknowledgement if other operations are open then, until the next acknowledgement. An operation
that failed, or whose outcome is unknown, is no answer: the wait goes on, as its client will try again. If
nobody has tried for :data:`PAUSE_US`, the wait ended with the last operation. Waits of :data:`FLOOR_US` and
more are unavailability.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S, second_of

FLOOR_US: Final = 500_000
PAUSE_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which one place was unavailable."""

    place: str
    begin_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        return self.end_us - self.begin_us


@dataclass(frozen=True, slots=True)
class Incident:
    """Windows that overlap, one after the other. ``longest`` is one of them, of one place."""

    begin_us: int
    end_us: int
    places: tuple[str, ...]
    longest: Window


@dataclass(slots=True)
class _Place:
    """``since_us``: since when it is waited for. ``left_us``: since when no operation is open."""

    open: int = 0
    since_us: int | None = None
    left_us: int = 0
    served_s: int = -1


class Availability:
    """Told of every operation that is waited on, in the order of the history."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._last_us = 0
        self._served: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()
        self._windows: list[Window] = []

    def invoked(self, place: str, at_us: int) -> None:
        state = self._places.get(place)
        if state is None:
            state = self._places[place] = _Place()
        if state.since_us is not None and state.open == 0 and at_us - state.left_us > PAUSE_US:
            self._note(place, state, state.since_us, state.left_us)
            state.since_us = None
        if state.since_us is None:
            state.since_us = at_us
        state.open += 1
        self._last_us = max(self._last_us, at_us)

    def ended(self, place: str, at_us: int, *, acknowledged: bool) -> None:
        """``invoked`` has been called for it."""
        state = self._places[place]
        state.open -= 1
        self._last_us = max(self._last_us, at_us)
        if not acknowledged:
            state.left_us = at_us
            return
        second = second_of(at_us)
        if state.since_us is not None:
            self._note(place, state, state.since_us, at_us, served_s=second)
        if state.served_s != second:
            state.served_s = second
            self._served[second] += 1
        state.since_us = at_us if state.open else None

    def windows(self) -> tuple[Window, ...]:
        """All of them, by their beginnings. Nothing more may be told after this."""
        for place, state in self._places.items():
            if state.since_us is not None:
                end_us = self._last_us if state.open else state.left_us
                self._note(place, state, state.since_us, end_us)
                state.since_us = None
        return tuple(sorted(self._windows, key=lambda window: (window.begin_us, window.place)))

    def shares(self, seconds: int) -> list[float | None]:
        """For each second: of the places that had an acknowledgement or were waited for during half of it,
        the share that had one; None if there were none. After :meth:`windows`."""
        return [
            served / (served + waiting)
            if (served := self._served[s]) + (waiting := self._waiting[s])
            else None
            for s in range(seconds)
        ]

    def _note(
        self, place: str, state: _Place, begin_us: int, end_us: int, served_s: int | None = None
    ) -> None:
        """``served_s``: the second of the acknowledgement that ended the wait."""
        if end_us - begin_us < FLOOR_US:
            return
        self._windows.append(Window(place, begin_us, end_us))
        for second in range(second_of(begin_us), second_of(end_us) + 1):
            start_us = second * US_PER_S
            waited_us = min(end_us, start_us + US_PER_S) - max(begin_us, start_us)
            if waited_us >= FLOOR_US and second not in (served_s, state.served_s):
                self._waiting[second] += 1


def incidents(windows: tuple[Window, ...]) -> tuple[Incident, ...]:
    """Windows that overlap are one incident; ``windows`` are ordered by their beginnings."""
    found: list[list[Window]] = []
    end_us = 0
    for window in windows:
        if found and window.begin_us <= end_us:
            found[-1].append(window)
            end_us = max(end_us, window.end_us)
        else:
            found.append([window])
            end_us = window.end_us
    return tuple(
        Incident(
            together[0].begin_us,
            max(window.end_us for window in together),
            tuple(sorted({window.place for window in together})),
            max(together, key=lambda window: window.length_us),
        )
        for together in found
    )
