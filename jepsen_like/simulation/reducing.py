"""Reduces a failing schedule to a shorter time, fewer faults and fewer parts of the world.

Any failure counts as the same one: the aim is a short trace that shows a bug, and a plan that shows two bugs
will show the second when the first is fixed. Time is an argument, and the search ends when it has passed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pykraft.jepsen_like.minimise import minimise as minimise_items
from pykraft.jepsen_like.simulation.schedule import Ring, Schedule, describe


def minimise(
    ring: Ring, schedule: Schedule, failure: str, *, time_limit_s: float, now_s: Callable[[], float]
) -> tuple[Schedule, str]:
    """The smallest failing schedule that was found, and how it fails; at worst ``failing`` itself."""
    search = _Search(ring, schedule, failure, now_s() + time_limit_s, now_s)
    search.shorten()
    for part in ring.parts:
        search.attempt(replace(search.best, without=search.best.without | {part}))
    if ring.planned is not None:
        search.drop_faults(ring.planned(schedule.seed, search.best.duration_ms))
        search.shorten()
    return search.best, search.failure


@dataclass
class _Search:
    """``best`` always fails, with ``failure``."""

    ring: Ring
    best: Schedule
    failure: str
    deadline_s: float
    now_s: Callable[[], float]

    def attempt(self, schedule: Schedule) -> bool:
        """Keep ``schedule`` if it fails, too."""
        if self.now_s() >= self.deadline_s:
            return False
        try:
            self.ring.run(schedule)
        except Exception as error:
            self.best, self.failure = schedule, describe(error)
            return True
        return False

    def shorten(self) -> None:
        """Halve the time while the schedule fails, then remove smaller shares."""
        share = 2
        while share <= 32:
            duration_ms = self.best.duration_ms - max(self.best.duration_ms // share, 1)
            if duration_ms < 1 or not self.attempt(replace(self.best, duration_ms=duration_ms)):
                share *= 2

    def drop_faults(self, planned: int) -> None:
        """Delta debugging: leave out smaller and smaller runs of faults."""
        kept = tuple(n for n in range(planned) if self.best.keeps(n))
        self.attempt(replace(self.best, faults=kept))
        minimise_items(kept, lambda fewer: self.attempt(replace(self.best, faults=tuple(fewer))), at_least=0)
