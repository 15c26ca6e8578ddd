"""Time to recover, as clients see it: until every place has served an operation that was asked for later.

The moments are the beginnings of faults, their repairs, and for comparison each second of calm.

**On one place** (a partition, see ``operations.place``) the clock runs while a client waits: from the
moment itself if an operation is open then, or the last one ended without an acknowledgement; otherwise from
the next invocation. It stops whenever the last open operation is acknowledged, and for good with the first
acknowledgement of an operation that was invoked at or after the moment. What it shows is the place's time
to recover. So a fault that hurts nobody costs what an operation costs at that time, and the wait of a
client that had asked before the fault counts as much as that of one that asks afterwards; pauses between
two answered operations do not count. Compare with the row of calm moments, which is measured in the same
way.

**Of a moment** it is the maximum over all places. A place does not count if it was idle at the moment and
nobody asks for it within :data:`ASKS_WITHIN_US`; if nobody does so after an answer, its clock stops there. A
place that has no such acknowledgement before the history ends has not recovered, and neither has the fault.
If its clients gave up (its last operation ended without an acknowledgement, :data:`ASKS_WITHIN_US` and more
before the last invocation of all), it does not count: nobody knows.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

ASKS_WITHIN_US: Final = 10_000_000


@dataclass(slots=True)
class Recovered:
    """How a moment was recovered from. ``waited_us`` is the time to recover, None if no place counts;
    ``at_us``: when the last place had recovered; ``missing``: the places that have not."""

    waited_us: int | None = None
    at_us: int = 0
    missing: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    """``waited_us``: how long its clients have waited, until ``busy_since_us`` if they wait now. ``pending``:
    the moments it has not recovered from, each with ``waited_us`` as it was then."""

    next_moment: int
    open: int = 0
    waited_us: int = 0
    busy_since_us: int | None = None
    idle_since_us: int = 0
    invoked_us: int = 0
    pending: deque[tuple[int, int]] = field(default_factory=deque)

    def waited_until(self, at_us: int) -> int:
        if self.busy_since_us is None:
            return self.waited_us
        return self.waited_us + max(0, at_us - self.busy_since_us)


class Recovery:
    """``moments_us`` in ascending order. Told of every operation that is waited on, in the order of the
    history. The work is one step for each operation, and one for each moment and place."""

    def __init__(self, moments_us: Sequence[int]) -> None:
        self._moments_us = moments_us
        self._places: dict[str, _Place] = {}
        self._results = [Recovered() for _ in moments_us]
        self._last_invoked_us = self._last_us = 0

    def invoked(self, place: str, at_us: int) -> None:
        state = self._places.get(place)
        if state is None:
            first = bisect_left(self._moments_us, at_us - ASKS_WITHIN_US)
            state = self._places[place] = _Place(first)
        self._pass_moments(state, at_us)
        if state.busy_since_us is None:
            self._leave_idle(state, at_us)
            state.busy_since_us = at_us
        state.open += 1
        state.invoked_us = at_us
        self._last_invoked_us = max(self._last_invoked_us, at_us)
        self._last_us = max(self._last_us, at_us)

    def ended(self, place: str, invoked_us: int, at_us: int, *, acknowledged: bool) -> None:
        """``invoked`` has been called for it."""
        state = self._places[place]
        self._pass_moments(state, at_us)
        state.open -= 1
        self._last_us = max(self._last_us, at_us)
        if not acknowledged:
            return
        waited_us = state.waited_until(at_us)
        while state.pending and self._moments_us[state.pending[0][0]] <= invoked_us:
            self._recover(state, waited_us, at_us)
        if state.open == 0:
            state.waited_us, state.busy_since_us, state.idle_since_us = waited_us, None, at_us

    def results(self) -> list[Recovered]:
        """One for each moment. Nothing more may be told after this."""
        for name, state in sorted(self._places.items()):
            gave_up = state.open == 0 and state.invoked_us <= self._last_invoked_us - ASKS_WITHIN_US
            if state.busy_since_us is None:
                self._leave_idle(state, None)
            elif not gave_up:
                self._pass_moments(state, self._last_us)
                for moment, _ in state.pending:
                    self._results[moment].missing.append(name)
        return self._results

    def _pass_moments(self, state: _Place, at_us: int) -> None:
        """Note how long had been waited at each moment up to now."""
        while state.next_moment < len(self._moments_us) and self._moments_us[state.next_moment] <= at_us:
            moment_us = self._moments_us[state.next_moment]
            state.pending.append((state.next_moment, state.waited_until(moment_us)))
            state.next_moment += 1

    def _leave_idle(self, state: _Place, asked_us: int | None) -> None:
        """An idle place is asked for again, or never (None): for too early moments its clock has stopped."""
        while state.pending:
            idle_us = max(state.idle_since_us, self._moments_us[state.pending[0][0]])
            if asked_us is not None and asked_us - idle_us <= ASKS_WITHIN_US:
                return
            if state.waited_us > state.pending[0][1]:
                self._recover(state, state.waited_us, state.idle_since_us)
            else:
                state.pending.popleft()

    def _recover(self, state: _Place, waited_us: int, at_us: int) -> None:
        moment, waited_before_us = state.pending.popleft()
        result = self._results[moment]
        result.waited_us = max(result.waited_us or 0, waited_us - waited_before_us)
        result.at_us = max(result.at_us, at_us)
