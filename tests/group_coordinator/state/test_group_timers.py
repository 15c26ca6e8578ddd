"""Timers of the coordinator that fire late, and requests that arrive in the same moment."""

import asyncio

from pykraft.group_coordinator.state.sessions import Deadlines, TimerKey, TimerKind
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import LeaveGroupRequest
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import Coordinator, running_world
from tests.narrowing import present
from tests.waits import settle

world = in_loop(running_world)


async def test_member_that_just_got_its_generation_is_not_expired_by_the_same_late_tick(
    world: Coordinator,
) -> None:
    """The loop was blocked until both the join phase and a joined member's session were over."""
    leader, absent = await world.pair()
    newcomer = world.join()
    await settle()
    world.clock.now_ms += 1_000
    for member in (leader, absent):
        assert await world.heartbeat(member, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = world.join(leader)
    await settle()
    assert not rejoin.done()
    await world.pass_time(10_000)
    for answer in (await rejoin, await newcomer):
        assert answer.error_code == 0
        assert answer.generation_id == 3
        assert await world.heartbeat(answer.member_id, 3) == 0


async def test_static_member_without_its_id_must_rejoin_and_is_not_fenced(world: Coordinator) -> None:
    """librdkafka forgets its member id when its session ends, and sends a heartbeat before it joins."""
    member = await world.first(group_instance_id="i")
    assert (await world.sync(member, 1)).error_code == 0
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.heartbeat("", 1, group_instance_id="i") == unknown
    assert (await world.sync("", 1, group_instance_id="i")).error_code == unknown
    assert await world.commit_one(1, generation_id_or_member_epoch=1, group_instance_id="i") == unknown
    assert (await world.join(version=5, group_instance_id="i")).error_code == 0


async def test_member_that_did_not_rejoin_is_removed_after_the_join_phase(world: Coordinator) -> None:
    _, absent = await world.pair()
    newcomer = world.join()
    await settle()
    await world.pass_time(10_001)
    assert (await newcomer).generation_id == 3
    assert await world.heartbeat(absent, 2) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_zero_rebalance_timeout_does_not_spin_on_an_absent_static_member(
    world: Coordinator,
) -> None:
    member = await world.first(group_instance_id="i", rebalance_timeout_ms=0)
    assert (await world.sync(member, 1)).error_code == 0
    passer_by = (await world.join(version=4, rebalance_timeout_ms=0)).member_id
    joining = world.join(passer_by, version=4, rebalance_timeout_ms=0)
    await settle()
    leave = LeaveGroupRequest(group_id="g", member_id=passer_by)
    assert (await world.send(leave, 1)).error_code == 0
    assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    fired = 0
    for _ in range(50):
        before = world.service._runtime._next_wake_ms(world.clock.now_ms)
        fired += before <= world.clock.now_ms
        world.service.tick()
    assert fired <= 5


async def test_nothing_is_due_at_the_end_of_the_sync_phase_once_the_last_member_has_its_assignment(
    world: Coordinator,
) -> None:
    leader = await world.first(rebalance_timeout_ms=4_000)
    second = world.join(rebalance_timeout_ms=4_000)
    await settle()
    rejoined = await world.join(leader, rebalance_timeout_ms=4_000)
    other, generation = (await second).member_id, rejoined.generation_id
    assert rejoined.leader == leader
    deadlines = world.hosted.shard.deadlines
    phase_end_ms = world.clock.now_ms + 4_000
    assert (await world.sync(leader, generation)).error_code == 0
    assert deadlines.next_deadline_ms() == phase_end_ms, "one may still be late"
    assert (await world.sync(other, generation)).error_code == 0
    assert present(deadlines.next_deadline_ms()) > phase_end_ms


async def test_timers_do_not_spin_while_the_lease_has_lapsed(world: Coordinator) -> None:
    await world.beat("m", 0)
    ticks = 0
    tick = world.service._runtime.tick

    def counted() -> None:
        nonlocal ticks
        ticks += 1
        tick()

    world.service._runtime.tick = counted  # type: ignore[method-assign]
    world.lease.end_ms = None
    world.clock.now_ms += 100_000
    await world.service.start()
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.05)
    assert ticks <= 2


def test_deadline_that_is_moved_earlier_fires_earlier() -> None:
    deadlines = Deadlines()
    key = TimerKey(TimerKind.SESSION, "g", "a")
    deadlines.set(key, 100)
    deadlines.set(key, 50, 7)
    assert deadlines.next_deadline_ms() == 50
    assert deadlines.pop_expired(50, 10) == [(key, 7)]
    assert deadlines.next_deadline_ms() is None


async def test_member_whose_removal_cannot_be_written_is_removed_as_soon_as_it_can(
    world: Coordinator,
) -> None:
    for name in ("a", "b"):
        assert (await world.beat(name, 0)).error_code == 0

    def members() -> set[str]:
        (state,) = world.service.states()
        group = state.consumer_group("g")
        assert group is not None
        return set(group.members)

    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        await world.pass_time(60_000)
    assert members() == {"a", "b"}
    world.writer.refuse = None
    await world.pass_time(2_000)
    assert members() == set()
