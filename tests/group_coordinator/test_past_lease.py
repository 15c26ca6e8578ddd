"""Past the lease of the broker: what is taken, what is answered and for how long, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.list_groups import ListGroupsRequest
from pykraft.kafka_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from tests.group_coordinator.test_adversarial_coordinator import CONFIG, World

REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


class LeaseUntil:
    """A lease that ends at a time of the coordinator's own clock; None: the broker knows it is fenced."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.end_ms: int | None = 2**60

    def lease_valid(self, now_ms: int) -> bool:
        return self.end_ms is not None and now_ms < self.end_ms

    def lapsed_ms(self, now_ms: int) -> int | None:
        return None if self.end_ms is None else max(0, now_ms + 1 - self.end_ms)


class Leased(World):
    def __init__(
        self, tools: SimpleNamespace, clock: Any = None, config: GroupConfig = CONFIG, seed: int = 1
    ) -> None:
        super().__init__(tools)
        self.clock = clock or self.clock
        self.until = LeaseUntil(self.clock)
        self.service = GroupCoordinatorService(
            config, self.writer, self.clock, tools.random(seed), lease=self.until
        )
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)

    def lapse(self) -> None:
        self.until.end_ms = self.clock.monotonic_ms()

    def regain(self) -> None:
        self.until.end_ms = 2**60

    def replicate(self) -> None:
        self.writer.watermarks[0] = len(self.writer.logs[0])
        self.service.on_high_watermark(0, self.writer.watermarks[0])

    async def join_classic(self) -> tuple[str, int]:
        """A stable group of one."""
        joining = self.join()
        await self.settle()
        self.pass_time(1)
        joined = await joining
        assert (await self.sync(joined.member_id, joined.generation_id)).error_code == 0
        return joined.member_id, joined.generation_id


@pytest.fixture
def leased(tools: SimpleNamespace) -> Callable[..., None]:
    def run(scenario: Callable[[Leased], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            made = Leased(tools)
            try:
                await made.lead()
                made.service.tick()
                await asyncio.wait_for(scenario(made), 20)
            finally:
                await made.service.stop()

        asyncio.run(main())

    return run


def test_commits_are_taken_and_answered_when_the_replicas_have_them(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        w.lapse()
        assert await w.commit(5) == 0
        w.writer.hold = True
        waiting = asyncio.ensure_future(w.commit(6))
        await w.settle()
        assert not waiting.done()
        w.replicate()
        assert await waiting == 0

    leased(scenario)


def test_commit_that_the_replicas_never_get_is_not_acknowledged(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        w.lapse()
        w.writer.hold = True
        waiting = asyncio.ensure_future(w.commit(6))
        await w.settle()
        w.pass_time(CONFIG.offset_commit_timeout_ms)
        assert await waiting == REFUSED

    leased(scenario)


def test_answer_that_is_late_is_withheld_though_the_replicas_come_first(leased: Any) -> None:
    """The process stood still: the followers' fetches are older than what a new coordinator did meanwhile."""

    async def scenario(w: Leased) -> None:
        w.writer.hold = True
        joining = w.beat("m", 0)
        await w.settle()
        w.clock.now_ms += 60_000
        w.replicate()
        assert (await joining).error_code == REFUSED

    leased(scenario)


def test_offsets_are_refused_stable_or_not_and_so_are_errors_and_listings(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        assert await w.commit(5) == 0
        w.lapse()
        for require_stable in (False, True):
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=require_stable
            )
            assert (await w.send(request, 8)).groups[0].error_code == REFUSED
        assert (await w.send(ListGroupsRequest(), 5)).error_code == REFUSED
        assert (await w.beat("unknown", 3)).error_code == REFUSED, "another coordinator may know it"
        assert (await w.heartbeat("unknown", 3)).error_code == REFUSED
        assert await w.commit(6, member_id="unknown", generation_id_or_member_epoch=3) == REFUSED

    leased(scenario)


def test_fenced_broker_coordinates_nothing(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.until.end_ms = None
        assert (await w.beat("m", joined.member_epoch)).error_code == REFUSED
        assert await w.commit(5) == REFUSED

    leased(scenario)


def test_consumer_member_is_answered_for_nine_tenths_of_its_session(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.lapse()
        end_ms = CONFIG.consumer_session_timeout_ms * 9 // 10
        for lapsed_ms in (0, 10_000, end_ms - 2):
            w.clock.now_ms = w.until.end_ms + lapsed_ms  # type: ignore[operator]
            w.service.tick()
            assert (await w.beat("m", joined.member_epoch)).error_code == 0
        w.clock.now_ms += 1
        assert (await w.beat("m", joined.member_epoch)).error_code == REFUSED

    leased(scenario)


def test_member_that_a_pending_record_throws_out_is_not_told_that_all_is_well(leased: Any) -> None:
    """The next leader may have that record, and has given the partitions to others then."""

    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.writer.hold = True
        w.pass_time(CONFIG.consumer_session_timeout_ms + 1)
        w.lapse()
        assert (await w.beat("m", joined.member_epoch)).error_code == REFUSED

    leased(scenario)


def test_member_whose_rebalance_takes_less_than_its_session_is_answered_for_less(leased: Any) -> None:
    """A new coordinator takes its partitions away when it does not give them back in that time."""

    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0, rebalance_timeout_ms=10_000)
        w.lapse()
        w.clock.now_ms += 8_998
        assert (await w.beat("m", joined.member_epoch)).error_code == 0
        w.clock.now_ms += 1
        assert (await w.beat("m", joined.member_epoch)).error_code == REFUSED

    leased(scenario)


def test_classic_member_is_answered_for_nine_tenths_of_its_session(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        member, generation = await w.join_classic()
        w.lapse()
        w.clock.now_ms += 8_998
        assert (await w.heartbeat(member, generation)).error_code == 0
        w.clock.now_ms += 1
        assert (await w.heartbeat(member, generation)).error_code == REFUSED

    leased(scenario)


def test_commits_that_wait_for_the_replicas_do_not_keep_heartbeats_waiting(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.lapse()
        w.writer.hold = True
        commit = asyncio.ensure_future(w.commit(5, group_id="simple"))
        await w.settle()
        assert (await w.beat("m", joined.member_epoch)).error_code == 0
        assert not commit.done()
        w.replicate()
        assert await commit == 0

    leased(scenario)


def test_nothing_moves_by_heartbeats_and_time_and_sessions_begin_anew_with_the_lease(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.lapse()
        before = (w.service._runtime._hosted[0].shard.state, len(w.writer.logs[0]))
        for _ in range(100):
            w.pass_time(2_000)
            await w.beat("m", joined.member_epoch)
        assert (w.service._runtime._hosted[0].shard.state, len(w.writer.logs[0])) == before
        w.regain()
        w.pass_time(1)
        w.pass_time(CONFIG.consumer_session_timeout_ms - 1_000)
        assert (await w.beat("m", joined.member_epoch)).error_code == 0

    leased(scenario)


def test_nobody_is_thrown_out_past_the_lease_though_nobody_asks(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        joined = await w.beat("m", 0)
        w.lapse()
        w.pass_time(1)
        w.pass_time(2 * CONFIG.consumer_session_timeout_ms)
        assert w.service._runtime._hosted[0].shard.state.consumer_group("g").members
        w.regain()
        w.pass_time(1)
        assert (await w.beat("m", joined.member_epoch)).error_code == 0

    leased(scenario)


def test_classic_rebalance_waits_at_the_door_until_the_lease_is_back(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        member, generation = await w.join_classic()
        w.lapse()
        state = w.service._runtime._hosted[0].shard.state
        newcomer, again = w.join(), w.join(member)
        await w.settle()
        w.pass_time(4_000)
        await w.settle()
        assert not newcomer.done()
        assert w.service._runtime._hosted[0].shard.state is state
        assert (await w.heartbeat(member, generation)).error_code == 0, "it has not been told to rejoin"
        w.regain()
        w.pass_time(1)
        await w.settle()
        w.pass_time(1)
        answers = [await newcomer, await again]
        assert {answer.error_code for answer in answers} == {0}
        assert {answer.generation_id for answer in answers} == {generation + 1}

    leased(scenario)


def test_who_waits_at_the_door_is_not_kept_for_ever(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        w.lapse()
        first = w.join()
        await w.settle()
        w.pass_time(CONFIG.offset_commit_timeout_ms)
        assert (await first).error_code == REFUSED
        second = w.join()
        await w.settle()
        w.service.on_resigned(0)
        assert (await second).error_code == ErrorCode.NOT_COORDINATOR

    leased(scenario)


def test_member_that_is_only_in_the_uncommitted_state_is_not_told_that_all_is_well(leased: Any) -> None:
    async def scenario(w: Leased) -> None:
        w.writer.hold = True
        joining = w.beat("m", 0)
        await w.settle()
        w.lapse()
        assert (await w.beat("m", 1)).error_code == REFUSED
        w.replicate()
        assert (await joining).error_code == 0

    leased(scenario)


def test_answer_that_grants_no_lease_moves_no_end_of_one() -> None:
    """It may come from a controller that was deposed: it proves nothing, not even about the past."""
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(7)
    logged = SimpleNamespace(fenced=False, epoch=7)
    lifecycle.handle_registration_change(logged)  # type: ignore[arg-type]
    answer = {"is_caught_up": True, "is_fenced": False, "should_shut_down": False}
    lifecycle.handle_heartbeat_answer(1_000, lease_ms=0, **answer)
    assert lifecycle.lapsed_ms(1_000) is None, "there was none"
    lifecycle.handle_heartbeat_answer(2_000, lease_ms=500, **answer)
    assert lifecycle.lapsed_ms(2_499) == 0
    assert lifecycle.lapsed_ms(2_500) == 1
    for sent_ms in range(3_000, 60_000, 1_000):
        lifecycle.handle_heartbeat_answer(sent_ms, lease_ms=0, **answer)
    assert lifecycle.lapsed_ms(60_000) == 57_501
    lifecycle.handle_stale_epoch()
    assert lifecycle.lapsed_ms(60_000) is None


# ---- two coordinators whose clocks disagree


class DriftingClock:
    """Runs at its own rate, from its own start."""

    def __init__(self, world: TwoCoordinators, rate: float, start_ms: int) -> None:
        self._world, self._rate, self._start_ms = world, rate, start_ms

    def monotonic_ms(self) -> int:
        return self._start_ms + int(self._world.true_ms * self._rate)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class TwoCoordinators:
    """One that was fenced when its lease had ended, and does not know it; and the one that leads since.

    The old one keeps one member, which does not know of the new one either; the new one is joined by another.
    Only what both read at the same true time is judged.
    """

    def __init__(self, tools: SimpleNamespace, seed: int) -> None:
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
        self.old = Leased(tools, DriftingClock(self, slow, 5_000), config)
        self.new = Leased(tools, DriftingClock(self, fast, 900_000), config, seed=2)
        self.last_well_ms = -1
        self.taken_ms: int | None = None

    async def elect_new(self) -> None:
        self.old.lapse()
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
def test_no_consumer_member_is_told_that_all_is_well_after_another_has_its_partitions(
    tools: SimpleNamespace, seed: int
) -> None:
    async def main() -> None:
        w = TwoCoordinators(tools, seed)
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
            fields: dict[str, Any] = {"topic_partitions": []}
            answer = await w.new.beat("x", other, **fields)
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

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(12))
def test_no_classic_member_is_told_that_all_is_well_after_the_group_went_on_without_it(
    tools: SimpleNamespace, seed: int
) -> None:
    async def main() -> None:
        w = TwoCoordinators(tools, seed)
        timeouts = {"session_timeout_ms": w.session_ms, "rebalance_timeout_ms": w.rebalance_ms}
        await w.old.lead()
        joining = w.old.join(**timeouts)
        await w.old.settle()
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
            if (await w.old.heartbeat(member, generation)).error_code == 0:
                w.last_well_ms = w.true_ms
            if newcomer.done():
                w.taken_ms = w.true_ms
        assert newcomer.result().error_code == 0
        for _ in range(2_000):
            await w.step()
            if (await w.old.heartbeat(member, generation)).error_code == 0:
                w.last_well_ms = w.true_ms
        assert 0 <= w.last_well_ms < w.taken_ms
        await w.old.service.stop()
        await w.new.service.stop()

    asyncio.run(main())
