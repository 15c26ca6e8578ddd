"""Repeats a run that showed an anomaly with fewer faults, until none of those that are left can be spared.

Real processes do not repeat their timing, so an anomaly counts as shown if one of several tries shows any of
the kinds that the run had; what is reported as needed is what could not be left out in so many tries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan
from pykraft.jepsen_like.faults.nemeses.planning import QUIET_END_S
from pykraft.jepsen_like.minimise import minimise

PLAN: Final = "plan-shrunk.json"

Show = Callable[[Plan], frozenset[str]]
"""Runs a plan once; the names of the anomalies that it showed."""


@dataclass(slots=True)
class Shrinking:
    """``anomalies``: any of these must be shown again. ``most_runs`` ends the search early."""

    show: Show
    anomalies: frozenset[str]
    tries: int
    most_runs: int
    say: Callable[[str], None]
    runs: int = field(default=0, init=False)

    def shrink(self, plan: Plan) -> Plan | None:
        """The shortest plan that was found; None if not even the whole one shows the anomaly again."""
        if not self._shows(plan, plan.faults):
            return None
        faults = minimise(plan.faults, lambda fewer: self._shows(plan, fewer)) if plan.faults else ()
        return _with(plan, faults)

    def _shows(self, plan: Plan, faults: Sequence[Fault]) -> bool:
        for number in range(1, self.tries + 1):
            if self.runs >= self.most_runs:
                return False
            self.runs += 1
            found = self.show(_with(plan, faults)) & self.anomalies
            self.say(f"{len(faults)} faults, try {number}: {', '.join(sorted(found)) or 'not shown'}")
            if found:
                return True
        return False


def _with(plan: Plan, faults: Sequence[Fault]) -> Plan:
    """The plan of these faults, which ends soon after the last of them."""
    end_s = max((fault.at_s + fault.lasts_s for fault in faults), default=plan.time_limit_s - QUIET_END_S)
    return replace(plan, faults=tuple(faults), time_limit_s=min(plan.time_limit_s, end_s + QUIET_END_S))


def write_shrunk(directory: Path, plan: Plan) -> Path:
    path = directory / PLAN
    plan.write(path)
    return path
