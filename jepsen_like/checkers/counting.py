"""Whether a run counts: a quiet run proves nothing, so its faults, writes and leader changes are counted.

The minimums are for 60 seconds and scale with the length of the run, but are at least one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pykraft.jepsen_like.history import Event

FAULT_OPS = ("kill", "kill-all", "pause")
MINIMUM_SECONDS = 60
MINIMUM_FAULTS = 8
MINIMUM_ACKNOWLEDGED = 20_000
MINIMUM_IN_TRANSACTIONS = 800
"""Of the transactions workload: each transaction waits for its end before the next one begins."""
MINIMUM_LEADER_CHANGES = 2
MINIMUM_CONTROLLER_CHANGES = 1


@dataclass(frozen=True, slots=True)
class Tally:
    """How much happened in a run, or must have happened at least."""

    faults: int
    acknowledged: int
    leader_changes: int
    controller_changes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """``shortfalls`` says in words what was missing; a run without any counts."""

    tally: Tally
    minimum: Tally
    faults_by_kind: tuple[tuple[str, int], ...]
    sends_by_status: tuple[tuple[str, int], ...]
    shortfalls: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.shortfalls


def minimum_for(time_limit_s: float, acknowledged: int = MINIMUM_ACKNOWLEDGED) -> Tally:
    """The minimums of a run of this length. ``acknowledged``: of one of 60 seconds."""
    scale = time_limit_s / MINIMUM_SECONDS
    return Tally(
        faults=max(1, math.ceil(MINIMUM_FAULTS * scale)),
        acknowledged=max(1, math.ceil(acknowledged * scale)),
        leader_changes=max(1, math.ceil(MINIMUM_LEADER_CHANGES * scale)),
        controller_changes=max(1, math.ceil(MINIMUM_CONTROLLER_CHANGES * scale)),
    )


def count_run(events: Iterable[Event], time_limit_s: float) -> Verdict:
    """One pass. A leader change is a move to another broker, with or without a time without a leader."""
    faults: dict[str, int] = {}
    sends: dict[str, int] = {}
    leaders: dict[str, str] = {}
    leader_changes = controller_changes = 0
    is_transactional = False
    for event in events:
        is_transactional = is_transactional or event.op == "txn-begin"
        if event.op == "send":
            sends[event.type] = sends.get(event.type, 0) + 1
        elif event.process == "nemesis" and event.op in FAULT_OPS and event.type == "ok":
            faults[event.op] = faults.get(event.op, 0) + 1
        elif event.op in ("leader", "controller") and event.value not in (None, "-1"):
            place = event.key or ""
            changed = leaders.get(place, event.value) != event.value
            leaders[place] = str(event.value)
            if event.op == "leader":
                leader_changes += changed
            else:
                controller_changes += changed
    tally = Tally(sum(faults.values()), sends.get("ok", 0), leader_changes, controller_changes)
    minimum = minimum_for(time_limit_s, MINIMUM_IN_TRANSACTIONS if is_transactional else MINIMUM_ACKNOWLEDGED)
    return Verdict(
        tally, minimum, tuple(sorted(faults.items())), tuple(sorted(sends.items())), _gaps(tally, minimum)
    )


def _gaps(tally: Tally, minimum: Tally) -> tuple[str, ...]:
    rows = (
        ("faults", tally.faults, minimum.faults),
        ("acknowledged writes", tally.acknowledged, minimum.acknowledged),
        ("partition-leader changes", tally.leader_changes, minimum.leader_changes),
        ("controller changes", tally.controller_changes, minimum.controller_changes),
    )
    return tuple(f"{have} {name}, at least {need} needed" for name, have, need in rows if have < need)
