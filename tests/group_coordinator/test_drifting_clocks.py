"""Two coordinators whose clocks disagree: no member keeps partitions that the other assigned elsewhere."""

import asyncio
from random import Random

import pytest

from pykraft.group_coordinator.state.config import GroupConfig
from tests.group_coordinator.coordinators import Coordinator
from tests.group_coordinator.requests import JoinFields
from tests.waits import settle


class DriftingClock:
    """A clock that runs at its own rate, from its own start."""

    def __init__(self, world: "TwoCoordinators", rate: float, start_ms: int) -> None:
        self._world, self._rate, self._start_ms = world, rate, start_ms

    def monotonic_ms(self) -> int:
        return self._start_ms + int(self._world.true_ms * self._rate)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class TwoCoordinators:
    """A coordinator that was fenced after its lease had ended and does not know it, and its successor.

    The old one keeps one member, which does not know the new one either; another member joins the new one.
    Only their clocks' readings at the same true time are compared.
    """

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.true_ms = 0
        slow, fast = rng.choice([(0.95, 1.05), (0.95, 1.0), (1.0, 1.05), (1.05, 0.95)])
        self.session_ms = rng.choice([6_000, 10_000, 45_000])
        self.rebalance_ms = rng.choice([5_000, 60_000])
        self.step_ms = rng.choice([37, 101, 250])
        self.election_ms = rng.choice([0, 0, 1, 3_000])
        config = GroupConfig(
            offsets_topic_num_partitions=1,
            initial_rebalance_delay_ms=0,
            consumer_session_timeout_ms=self.session_ms,
            consumer_heartbeat_interval_ms=1_000,
        )
        self.old = Coordinator(config, clock=DriftingClock(self, slow, 5_000))
        self.new = Coordinator(config, clock=DriftingClock(self, fast, 900_000), seed=2)
        self.last_well_ms = -1
        self.taken_ms: int | None = None

    async def elect_new(self) -> None:
        self.old.expire_lease()
        committed = list(self.old.writer.logs[0])
        self.old.writer.hold = True
        self.true_ms += self.election_ms
        self.new.writer.logs[0] = committed
        self.new.writer.watermarks[0] = len(committed)
        await self.new.lead(2)

    async def step(self) -> None:
        self.true_ms += self.step_ms
        self.old.service.tick()
        self.new.service.tick()
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_no_consumer_member_gets_an_answer_without_error_after_another_has_its_partitions(
    seed: int,
) -> None:
    w = TwoCoordinators(seed)
    await w.old.lead()
    w.old.service.tick()
    epoch = (await w.old.beat("m", 0, rebalance_timeout_ms=w.rebalance_ms)).member_epoch
    await w.elect_new()
    other = 0
    while w.taken_ms is None:
        assert w.true_ms < 200_000
        await w.step()
        if (await w.old.beat("m", epoch)).error_code == 0:
            w.last_well_ms = w.true_ms
        answer = await w.new.beat("x", other, set())
        assert answer.error_code == 0
        other = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            w.taken_ms = w.true_ms
    for _ in range(2_000):
        await w.step()
        if (await w.old.beat("m", epoch)).error_code == 0:
            w.last_well_ms = w.true_ms
    assert 0 <= w.last_well_ms < w.taken_ms
    await w.old.service.stop()
    await w.new.service.stop()


@pytest.mark.parametrize("seed", range(12))
async def test_no_classic_member_gets_an_answer_without_error_after_a_rebalance_without_it(seed: int) -> None:
    w = TwoCoordinators(seed)
    timeouts: JoinFields = {
        "session_timeout_ms": w.session_ms,
        "rebalance_timeout_ms": w.rebalance_ms,
    }
    await w.old.lead()
    joining = w.old.join(**timeouts)
    await settle()
    w.true_ms += 10
    w.old.service.tick()
    joined = await joining
    member, generation = joined.member_id, joined.generation_id
    assert (await w.old.sync(member, generation)).error_code == 0
    await w.elect_new()
    newcomer = w.new.join(**timeouts)
    while w.taken_ms is None:
        assert w.true_ms < 200_000
        await w.step()
        if await w.old.heartbeat(member, generation) == 0:
            w.last_well_ms = w.true_ms
        if newcomer.done():
            w.taken_ms = w.true_ms
    assert newcomer.result().error_code == 0
    for _ in range(2_000):
        await w.step()
        if await w.old.heartbeat(member, generation) == 0:
            w.last_well_ms = w.true_ms
    assert 0 <= w.last_well_ms < w.taken_ms
    await w.old.service.stop()
    await w.new.service.stop()
