"""The plan of a run is a function of its seed, and always has the faults that a valid run needs."""

from __future__ import annotations

import pytest

from pykraft.jepsen_like.checkers.counting import MINIMUM_FAULTS
from pykraft.jepsen_like.nemesis import (
    LONGEST_PAUSE_S,
    QUIET_END_S,
    QUIET_START_S,
    Fault,
    FaultKind,
    Target,
    plan_faults,
)

ANSWER_S = 1.5
"""The time of a fault in addition to its length: finding the victim, and a node's start."""


def _carried_out(plan: list[Fault], time_limit_s: float) -> list[Fault]:
    now_s, done = QUIET_START_S, []
    for fault in plan:
        if now_s + fault.down_s <= time_limit_s - QUIET_END_S:
            done.append(fault)
            now_s += fault.down_s + fault.rest_s + ANSWER_S
    return done


def test_same_seed_gives_the_same_plan() -> None:
    assert plan_faults(7, 60, 3) == plan_faults(7, 60, 3)
    assert plan_faults(7, 60, 3) != plan_faults(8, 60, 3)


@pytest.mark.parametrize("seed", range(200))
def test_minute_holds_enough_faults_of_the_right_kinds(seed: int) -> None:
    done = _carried_out(plan_faults(seed, 60, 3), 60)
    assert len(done) >= MINIMUM_FAULTS
    assert any(f.target is Target.CONTROLLER and f.kind is FaultKind.KILL for f in done)
    assert sum(f.target is Target.BUSIEST and f.kind is FaultKind.KILL for f in done) >= 2
    assert any(f.kind is FaultKind.PAUSE and f.down_s > 3 for f in done)
    assert all(1 <= f.down_s <= LONGEST_PAUSE_S for f in done if f.kind is FaultKind.PAUSE)


def test_killing_all_nodes_is_rare_but_happens() -> None:
    plans = [plan_faults(seed, 60, 3) for seed in range(300)]
    with_all = sum(any(fault.kind is FaultKind.KILL_ALL for fault in plan) for plan in plans)
    assert 15 < with_all < 90
