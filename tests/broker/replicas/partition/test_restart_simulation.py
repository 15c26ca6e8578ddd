"""Three brokers and one partition through every kind of restart, by seed (:mod:`restart_world`)."""

from collections import Counter

import pytest

from tests.broker.isr_controller import healed_worlds
from tests.broker.restart_world import World
from tests.seeds import seeds


@pytest.mark.parametrize("block", seeds(6, checked=2))
def test_every_batch_is_written_once_and_in_order_whatever_fails(block: int) -> None:
    totals: Counter[str] = Counter()
    acknowledged = 0
    for world in healed_worlds(block, World, steps=1500, check_logs_every=20):
        acknowledged += sum(batch.acknowledged for batch in world.batches)
        totals.update(world.counts)
    assert acknowledged > 20 * 150, acknowledged
    assert totals["refused"] <= 2, totals
    wanted = (
        "elect",
        "isr",
        "stop",
        "kill",
        "power",
        "wipe",
        "recreate",
        "duplicate",
        "truncate",
        "retention",
    )
    assert all(totals[name] >= 4 for name in wanted), totals
