"""Schedules of the simulation as if they were tests: measured, and tried on what no test finds."""

import logging
from dataclasses import dataclass

from pykraft.jepsen_like.simulation.rings import RINGS
from pykraft.jepsen_like.simulation.runner import attempt
from pykraft.jepsen_like.simulation.schedule import Outcome, Schedule

FILE = "simulation"
"""In place of a file of tests."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Whose name is the command line that repeats it."""

    ring: str
    schedule: Schedule

    @property
    def name(self) -> str:
        return self.schedule.command(self.ring)

    def run(self) -> str | None:
        """The violation, or None."""
        logging.disable(logging.CRITICAL)
        outcome = attempt(RINGS[self.ring], self.schedule)
        return None if isinstance(outcome, Outcome) else outcome


SCHEDULES = {
    tried.name: tried
    for tried in (
        *(Tried("quorum", Schedule(seed)) for seed in range(700, 704)),
        *(
            Tried("cluster", Schedule(700 + number, workload=workload))
            for number, workload in enumerate(RINGS["cluster"].workloads)
        ),
        *(Tried("cluster", Schedule(seed, workload="transactions")) for seed in (710, 711)),
    )
}
