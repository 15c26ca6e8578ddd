"""The results of many schedules, in numbers and in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pykraft.jepsen_like.simulation.schedule import Outcome

_MOST_FREQUENT: Final = 5
_MS_PER_HOUR: Final = 3_600_000


@dataclass(slots=True)
class Tally:
    """The results of the schedules of one ring. ``failures``: lines with the commands that repeat them.

    ``schedules`` includes those that failed; their other counts are not included.
    """

    ring: str
    schedules: int = 0
    directed: int = 0
    virtual_ms: int = 0
    events: int = 0
    planned: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.virtual_ms += outcome.virtual_ms
        self.events += outcome.events
        self.planned += outcome.planned
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        self.traces.append(f"{self.ring} {outcome.seed} {outcome.trace}")

    def lines(self) -> list[str]:
        """Everything that was counted, in full."""
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        speed = self.virtual_ms / 1000 / max(self.wall_s, 0.001)
        return [
            f"{self.ring}: {self.schedules} schedules and {self.directed} written by hand, {counts};"
            f" {speed:.0f} virtual s per wall s",
            f"{self.ring}: faults: {faults or 'none'}",
        ]


def closing_lines(tallies: Sequence[Tally], wall_s: float) -> list[str]:
    """Three lines for readers who have never seen a simulation: the schedules, the faults, the violations."""
    rings = " and ".join(f"{tally.schedules:,} of ring {tally.ring}" for tally in tallies)
    directed = sum(tally.directed for tally in tallies)
    by_hand = f" and {directed:,} written by hand" if directed else ""
    hours = sum(tally.virtual_ms for tally in tallies) / _MS_PER_HOUR
    events = sum(tally.events for tally in tallies)
    faults: Counter[str] = sum((tally.faults for tally in tallies), Counter())
    frequent = ", ".join(f"{name} {count:,}" for name, count in faults.most_common(_MOST_FREQUENT))
    most_often = f", most often {frequent}" if frequent else ""
    failures = sum(len(tally.failures) for tally in tallies)
    violations = f"{failures}, above, each with the command that reproduces it" if failures else "none"
    return [
        f"Schedules: {rings}{by_hand}; {hours:,.2f} virtual hours, {events:,} events, in {wall_s:,.0f} s",
        f"Injected faults: {faults.total():,} of {len(faults)} kinds{most_often}",
        f"Violations: {violations}",
    ]
