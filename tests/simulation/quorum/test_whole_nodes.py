"""The product's driver, log and state file under seeded faults in virtual time."""

import logging

import pytest

from pykraft.jepsen_like.simulation.quorum_nodes import ring as simulation

SEEDS = [pytest.param(seed, marks=[] if seed < 3 else [pytest.mark.slow]) for seed in range(16)]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_nodes_keep_every_invariant_and_each_schedule_ends_in_progress(seed: int) -> None:
    outcome = simulation.run_schedule(seed)
    assert outcome.acknowledged > 0 and outcome.led_epochs > 1 and outcome.restarts > 3


def test_same_seed_gives_the_same_outcome() -> None:
    assert simulation.run_schedule(2) == simulation.run_schedule(2)
