"""Whether a run counts: a quiet run proves nothing, so its faults, operations and leader changes are counted.

The minimums are for 60 seconds and scale with the length of the run, but are at least one. What must have
been acknowledged, and how often, depends on the workload, which the history names; no more faults and changes
of leaders are required than the run was asked for (:class:`Asked`). Nor does a run count if a checker had to
give up.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.faults.history import Event, is_fault

MINIMUM_SECONDS = 60
MINIMUM_FAULTS = 8
MINIMUM_LEADER_CHANGES = 2
MINIMUM_CONTROLLER_CHANGES = 1


@dataclass(frozen=True, slots=True)
class Measure:
    """``minimum``: so many operations ``ops`` must have been acknowledged; ``what`` they are."""

    minimum: int
    ops: frozenset[str] = frozenset({"send"})
    what: str = "acknowledged writes"


USUAL: Final = Measure(20_000)
MEASURES: Final[Mapping[str, Measure]] = {
    "transactions": Measure(800),  # each waits for its end before the next one begins
    "transactions-flushed": Measure(400),
    "registers": Measure(
        3_000, frozenset({"commit", "committed", "set", "look", "allocate"}), "answered operations"
    ),
    "compacted": Measure(3_000, frozenset({"put"}), "acknowledged puts"),
}
"""For workloads to which :data:`USUAL` does not apply."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How much happened in a run, or must have happened at least."""

    faults: int
    acknowledged: int
    leader_changes: int
    controller_changes: int


@dataclass(frozen=True, slots=True)
class Asked:
    """How many ``faults`` were planned, and how many of them must move the leadership of some partition
    (``moving``) or of the controllers (``deposing``)."""

    faults: int
    moving: int
    deposing: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """``sends_by_status``: of counted operations. ``shortfalls``: what is missing for the run to count."""

    tally: Tally
    minimum: Tally
    faults_by_kind: tuple[tuple[str, int], ...]
    sends_by_status: tuple[tuple[str, int], ...]
    shortfalls: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.shortfalls


def minimum_for(time_limit_s: float, acknowledged: int = USUAL.minimum) -> Tally:
    """The minimums of a run of this length. ``acknowledged``: of one of 60 seconds."""
    scale = time_limit_s / MINIMUM_SECONDS
    return Tally(
        faults=max(1, math.ceil(MINIMUM_FAULTS * scale)),
        acknowledged=max(1, math.ceil(acknowledged * scale)),
        leader_changes=max(1, math.ceil(MINIMUM_LEADER_CHANGES * scale)),
        controller_changes=max(1, math.ceil(MINIMUM_CONTROLLER_CHANGES * scale)),
    )


def count_run(
    events: Iterable[Event], time_limit_s: float, undecided: int = 0, asked: Asked | None = None
) -> Verdict:
    """One pass. A leader change is a move to another broker, with or without a time without a leader.

    On a cluster that somebody else runs there are no faults, and nobody sees who leads: of such a run only
    operations are required. Of a simulated schedule nothing is: its own checks say what must happen.
    ``undecided``: the registers of which nobody knows whether they are linearizable. ``asked``: None if
    there is no plan.
    """
    faults: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    measure, is_foreign, is_simulated = USUAL, False, False
    leaders: dict[str, str] = {}
    leader_changes = controller_changes = 0
    for event in events:
        if event.op in measure.ops:
            outcomes[event.type] = outcomes.get(event.type, 0) + 1
        elif event.op == "run":
            settings = event.detail or {}
            measure = MEASURES.get(settings.get("workload", ""), USUAL)
            is_foreign = settings.get("bootstrap_servers") is not None
            is_simulated = "violations" in settings
        elif is_fault(event):
            faults[event.op] = faults.get(event.op, 0) + 1
        elif event.op in ("leader", "controller") and event.value not in (None, "-1"):
            place = event.key or ""
            changed = leaders.get(place, event.value) != event.value
            leaders[place] = str(event.value)
            if event.op == "leader":
                leader_changes += changed
            else:
                controller_changes += changed
    tally = Tally(sum(faults.values()), outcomes.get("ok", 0), leader_changes, controller_changes)
    minimum = minimum_for(time_limit_s, measure.minimum)
    if is_simulated:
        minimum = Tally(0, 0, 0, 0)
    elif is_foreign:
        minimum = _of_those_asked(minimum, Asked(0, 0, 0))
    elif asked is not None:
        minimum = _of_those_asked(minimum, asked)
    shortfalls = _gaps(tally, minimum, measure.what)
    if undecided:
        shortfalls += (f"{undecided} registers could not be decided",)
    return Verdict(tally, minimum, tuple(sorted(faults.items())), tuple(sorted(outcomes.items())), shortfalls)


def _of_those_asked(minimum: Tally, asked: Asked) -> Tally:
    """Not every planned fault is possible when its time comes: half of them must have been."""
    return Tally(
        faults=min(minimum.faults, math.ceil(asked.faults / 2)),
        acknowledged=minimum.acknowledged,
        leader_changes=min(minimum.leader_changes, math.ceil(asked.moving / 2)),
        controller_changes=min(minimum.controller_changes, math.ceil(asked.deposing / 2)),
    )


def _gaps(tally: Tally, minimum: Tally, acknowledged: str) -> tuple[str, ...]:
    rows = (
        ("faults", tally.faults, minimum.faults),
        (acknowledged, tally.acknowledged, minimum.acknowledged),
        ("partition-leader changes", tally.leader_changes, minimum.leader_changes),
        ("controller changes", tally.controller_changes, minimum.controller_changes),
    )
    return tuple(f"{have} {name}, at least {need} needed" for name, have, need in rows if have < need)
