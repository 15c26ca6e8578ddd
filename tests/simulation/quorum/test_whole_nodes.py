"""The product's driver, log and state file under seeded faults in virtual time."""

import logging
from typing import Any

import pytest

from pykraft.jepsen_like.simulation.quorum_nodes.ring import run_schedule
from pykraft.jepsen_like.simulation.schedule import Outcome, Schedule

SEEDS = [pytest.param(seed, marks=[] if seed < 3 else [pytest.mark.slow]) for seed in range(16)]


def run(seed: int, **left_out: Any) -> Outcome:
    return run_schedule(Schedule(seed, duration_ms=5000, **left_out))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_nodes_keep_every_invariant_and_each_schedule_ends_in_progress(seed: int) -> None:
    counts = run(seed).counts
    assert counts["acknowledged"] > 0 and counts["led epochs"] > 1 and counts["restarts"] > 3


def test_same_seed_gives_the_same_trace() -> None:
    assert run(2) == run(2)


def test_faults_and_the_client_can_be_left_out() -> None:
    calm = run(2, faults=(), without=frozenset({"client", "kills between effects"}))
    assert not calm.faults and calm.counts["restarts"] == 0
    kept = run(2, faults=(3, 4), without=frozenset({"kills between effects"}))
    assert sum(kept.faults.values()) <= 2
    assert set(kept.faults) <= set(run(2).faults)
