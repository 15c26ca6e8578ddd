"""Three brokers and one partition through every kind of restart, by seed (:mod:`restart_world`)."""

from __future__ import annotations

import pytest

from tests.broker.restart_world import World


def run(seed: int, steps: int = 1500) -> World:
    world = World(seed)
    for number in range(steps):
        world.step()
        world.check()
        if number % 20 == 0:
            world.check_logs()
    world.check_logs()
    world.heal()
    world.check_logs()
    return world


@pytest.mark.parametrize("block", range(6))
def test_every_batch_is_written_once_and_in_order_whatever_fails(block: int) -> None:
    totals: dict[str, int] = {}
    acknowledged = 0
    for seed in range(block * 20, block * 20 + 20):
        try:
            world = run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += sum(batch.acknowledged for batch in world.batches)
        for name, count in world.counts.items():
            totals[name] = totals.get(name, 0) + count
    assert acknowledged > 20 * 200, acknowledged
    assert totals.get("refused", 0) <= 2, totals
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
    assert all(totals.get(name, 0) >= 4 for name in wanted), totals
