"""Transactions of one replica by seed (:mod:`transactional_world`)."""

from collections import Counter

import pytest

from tests.broker.transactional_world import World


@pytest.mark.parametrize("block", range(4))
def test_derived_state_is_that_of_the_log_whatever_happens(block: int) -> None:
    totals: Counter[str] = Counter()
    for seed in range(block * 10, block * 10 + 10):
        world = World(seed)
        for _ in range(150):
            world.step()
            world.check()
        totals.update(world.counts)
    wanted = ("data", "marker", "flush", "cut", "rebuilt", "stop", "kill", "power")
    assert all(totals[name] >= 5 for name in wanted), totals
