"""The faults that an anomaly needs are found, also if it is not shown every time."""

import random

import pytest

from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan, Target
from pykraft.jepsen_like.faults.runs.shrinking import Shrinking
from pykraft.jepsen_like.minimise import minimise

FAULTS = tuple(Fault(number, "kill", Target.ANY, 2.0 * number, 1.0) for number in range(20))
PLAN = Plan(7, 60.0, (), FAULTS)


def shrinking(show: object, tries: int = 3, most_runs: int = 1_000) -> Shrinking:
    return Shrinking(show, frozenset({"lost-write"}), tries, most_runs, lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(50))
def test_needed_items_remain_in_their_order(seed: int) -> None:
    rng = random.Random(seed)
    items = list(range(rng.randint(1, 30)))
    needed = sorted(rng.sample(items, rng.randint(1, min(4, len(items)))))
    assert minimise(items, lambda fewer: set(needed) <= set(fewer)) == needed


def test_only_needed_faults_remain_and_the_run_becomes_shorter() -> None:
    def show(plan: Plan) -> frozenset[str]:
        numbers = {fault.number for fault in plan.faults}
        return frozenset({"lost-write"} if {3, 11} <= numbers else {"unseen"})

    shrunk = shrinking(show, tries=1).shrink(PLAN)
    assert shrunk is not None
    assert [fault.number for fault in shrunk.faults] == [3, 11]
    assert shrunk.time_limit_s == 25.0
    assert shrunk.seed == PLAN.seed


def test_anomaly_of_chance_is_tried_several_times() -> None:
    rng = random.Random(5)

    def show(plan: Plan) -> frozenset[str]:
        is_shown = any(fault.number == 4 for fault in plan.faults) and rng.random() < 0.6
        return frozenset({"lost-write"} if is_shown else ())

    shrunk = shrinking(show, tries=9).shrink(PLAN)
    assert shrunk is not None and [fault.number for fault in shrunk.faults] == [4]


def test_anomaly_that_is_not_shown_again_gives_no_plan() -> None:
    search = shrinking(lambda plan: frozenset(), tries=4)
    assert search.shrink(PLAN) is None
    assert search.runs == 4


def test_number_of_runs_is_bounded() -> None:
    search = shrinking(lambda plan: frozenset({"lost-write"}), tries=1, most_runs=3)
    shrunk = search.shrink(PLAN)
    assert search.runs == 3
    assert shrunk is not None and 0 < len(shrunk.faults) < len(FAULTS)
