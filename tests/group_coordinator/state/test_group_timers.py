"""Timers of the coordinator that fire late, and requests that arrive in the same moment."""

import asyncio

from pykraft.group_coordinator.state.sessions import Deadlines, TimerKey, TimerKind
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from tests.group_coordinator.coordinators import CommitFields, World, run_world
from tests.narrowing import present


def test_member_that_just_got_its_generation_is_not_expired_by_the_same_late_tick() -> None:
    """The loop was blocked until both the join phase and a joined member's session were over."""

    async def scenario(w: World) -> None:
        await w.lead()
        leader, absent, generation = await w.stable_pair()
        newcomer = w.join()
        await w.settle()
        w.clock.now_ms += 1_000
        for member in (leader, absent):
            beat = await w.heartbeat(member, generation)
            assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        rejoin = w.join(leader)
        await w.settle()
        assert not rejoin.done()
        w.clock.now_ms += 10_000
        w.service.tick()
        for answer in (await rejoin, await newcomer):
            assert answer.error_code == 0
            assert answer.generation_id == generation + 1
            beat = await w.heartbeat(answer.member_id, answer.generation_id)
            assert beat.error_code == 0

    run_world(scenario)


def test_static_member_without_its_id_must_rejoin_and_is_not_fenced() -> None:
    """librdkafka forgets its member id when its session ends, and sends a heartbeat before it joins."""

    async def scenario(w: World) -> None:
        await w.lead()
        join = w.join(version=5, group_instance_id="i")
        await w.settle()
        w.pass_time(1)
        member = (await join).member_id
        assert (await w.sync(member, 1)).error_code == 0
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="", group_instance_id="i")
        assert (await w.send(beat, 3)).error_code == unknown
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="", group_instance_id="i")
        assert (await w.send(sync, 3)).error_code == unknown
        lost: CommitFields = {"generation_id_or_member_epoch": 1, "member_id": "", "group_instance_id": "i"}
        assert await w.commit(1, **lost) == unknown
        assert (await w.join(version=5, group_instance_id="i")).error_code == 0

    run_world(scenario)


def test_member_that_did_not_rejoin_is_removed_after_the_join_phase() -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        _, absent, generation = await w.stable_pair()
        newcomer = w.join()
        await w.settle()
        w.pass_time(10_001)
        assert (await newcomer).generation_id == generation + 1
        assert (await w.heartbeat(absent, generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run_world(scenario)


def test_zero_rebalance_timeout_does_not_spin_on_an_absent_static_member() -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        join = w.join(version=5, group_instance_id="i", rebalance_timeout_ms=0)
        await w.settle()
        w.pass_time(1)
        member = (await join).member_id
        assert (await w.sync(member, 1)).error_code == 0
        passer_by = (await w.join(version=4, rebalance_timeout_ms=0)).member_id
        joining = w.join(passer_by, version=4, rebalance_timeout_ms=0)
        await w.settle()
        leave = LeaveGroupRequest(group_id="g", member_id=passer_by)
        assert (await w.send(leave, 1)).error_code == 0
        assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        fired = 0
        for _ in range(50):
            before = w.service._runtime._next_wake_ms(w.clock.now_ms)
            fired += before <= w.clock.now_ms
            w.service.tick()
        assert fired <= 5

    run_world(scenario)


def test_nothing_is_due_at_the_end_of_the_sync_phase_once_the_last_member_has_its_assignment() -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        first = w.join(rebalance_timeout_ms=4_000)
        await w.settle()
        w.pass_time(1)
        leader = (await first).member_id
        second = w.join(rebalance_timeout_ms=4_000)
        await w.settle()
        rejoined = await w.join(leader, rebalance_timeout_ms=4_000)
        other, generation = (await second).member_id, rejoined.generation_id
        assert rejoined.leader == leader
        deadlines = w.service._runtime._hosted[0].shard.deadlines
        phase_end_ms = w.clock.now_ms + 4_000
        assert (await w.sync(leader, generation)).error_code == 0
        assert deadlines.next_deadline_ms() == phase_end_ms, "one may still be late"
        assert (await w.sync(other, generation)).error_code == 0
        assert present(deadlines.next_deadline_ms()) > phase_end_ms

    run_world(scenario)


def test_timers_do_not_spin_while_the_lease_has_lapsed() -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        await w.beat("m", 0)
        ticks = 0
        tick = w.service._runtime.tick

        def counted() -> None:
            nonlocal ticks
            ticks += 1
            tick()

        w.service._runtime.tick = counted  # type: ignore[method-assign]
        w.lease.valid = False
        w.clock.now_ms += 100_000
        await w.service.start()
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.05)
        assert ticks <= 2

    run_world(scenario)


def test_deadline_that_is_moved_earlier_fires_earlier() -> None:
    deadlines = Deadlines()
    key = TimerKey(TimerKind.SESSION, "g", "a")
    deadlines.set(key, 100)
    deadlines.set(key, 50, 7)
    assert deadlines.next_deadline_ms() == 50
    assert deadlines.pop_expired(50, 10) == [(key, 7)]
    assert deadlines.next_deadline_ms() is None


def test_member_whose_removal_cannot_be_written_is_removed_as_soon_as_it_can() -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        for name in ("a", "b"):
            assert (await w.beat(name, 0)).error_code == 0

        def members() -> set[str]:
            (state,) = w.service.states()
            group = state.consumer_group("g")
            assert group is not None
            return set(group.members)

        w.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        for _ in range(3):
            w.pass_time(60_000)
            await w.settle()
        assert members() == {"a", "b"}
        w.writer.refuse = None
        w.pass_time(2_000)
        await w.settle()
        assert members() == set()

    run_world(scenario)
