"""Past the lease of the broker: what is accepted, what is answered and for how long, and what is refused."""

import asyncio
from types import SimpleNamespace
from typing import Any

from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import ListGroupsRequest
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import CONFIG, Coordinator, running, running_world
from tests.group_coordinator.requests import fetch_offsets
from tests.narrowing import present
from tests.waits import settle

world = in_loop(lambda: running(Coordinator()))
coordinator = in_loop(running_world)


async def test_coordinator_past_its_lease_answers_no_member(coordinator: Coordinator) -> None:
    """Another coordinator may have reassigned the member's partitions, or accepted newer commits."""
    joined = await coordinator.beat("m", 0)
    assert joined.error_code == 0
    coordinator.lease.end_ms = None
    refused = await coordinator.beat("m", joined.member_epoch)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    fetched = (await coordinator.send(fetch_offsets(), 8)).groups[0]
    assert fetched.error_code == ErrorCode.NOT_COORDINATOR, "older consumers know no other error"
    assert await coordinator.commit_one(5, group_id="simple") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.regain_lease()
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0


async def test_members_refused_past_the_lease_are_not_removed_when_their_sessions_expire(
    coordinator: Coordinator,
) -> None:
    joined = await coordinator.beat("m", 0)
    await coordinator.pass_time(40_000)
    coordinator.lease.end_ms = None
    refused = await coordinator.beat("m", joined.member_epoch)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await coordinator.pass_time(60_000)
    coordinator.regain_lease()
    await coordinator.pass_time(1)
    await coordinator.pass_time(44_000)
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0
    await coordinator.pass_time(45_001)
    gone = await coordinator.beat("m", joined.member_epoch)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "the session runs again"


async def test_lapse_between_two_ticks_is_noticed_by_the_refusal_alone(coordinator: Coordinator) -> None:
    joined = await coordinator.beat("m", 0)
    coordinator.lease.end_ms = None
    coordinator.clock.now_ms += 40_000
    await coordinator.beat("m", joined.member_epoch)
    coordinator.regain_lease()
    await coordinator.pass_time(6_000)
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0


REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_commits_are_accepted_and_answered_when_the_replicas_have_them(world: Coordinator) -> None:
    world.expire_lease()
    assert await world.commit_one(5) == 0
    world.writer.hold = True
    waiting = asyncio.ensure_future(world.commit_one(6))
    await settle()
    assert not waiting.done()
    world.release()
    assert await waiting == 0


async def test_commit_that_the_replicas_never_get_is_not_acknowledged(world: Coordinator) -> None:
    world.expire_lease()
    world.writer.hold = True
    waiting = asyncio.ensure_future(world.commit_one(6))
    await settle()
    await world.pass_time(CONFIG.offset_commit_timeout_ms)
    assert await waiting == REFUSED


async def test_late_answer_is_withheld_even_if_the_replicas_confirm_first(world: Coordinator) -> None:
    """The process was stalled: the followers' fetches are older than what a new coordinator did meanwhile."""
    world.writer.hold = True
    joining = world.beat("m", 0)
    await settle()
    world.clock.now_ms += 60_000
    world.release()
    assert (await joining).error_code == REFUSED


def read_everything(w: Coordinator) -> list[asyncio.Task[Any]]:
    """Requests for offsets, which need stable ones or do not, and for listings."""
    reads = [w.send(fetch_offsets(require_stable=is_stable), 8) for is_stable in (False, True)]
    return [*reads, w.send(ListGroupsRequest(), 5)]


async def test_offsets_and_listings_wait_for_the_lease_and_are_those_of_that_moment(
    world: Coordinator,
) -> None:
    assert await world.commit_one(5) == 0
    world.expire_lease()
    reads = read_everything(world)
    await settle()
    await world.pass_time(CONFIG.offset_commit_timeout_ms - 2)
    await settle()
    assert not any(read.done() for read in reads)
    assert await world.commit_one(6) == 0
    world.regain_lease()
    await world.pass_time(1)
    *offsets, listing = [await read for read in reads]
    for answer in offsets:
        assert answer.groups[0].error_code == 0
        assert answer.groups[0].topics[0].partitions[0].committed_offset == 6
    assert listing.error_code == 0


async def test_offsets_and_listings_are_refused_when_the_lease_does_not_come_back(
    world: Coordinator,
) -> None:
    assert await world.commit_one(5) == 0
    world.expire_lease()
    reads = read_everything(world)
    await settle()
    await world.pass_time(CONFIG.offset_commit_timeout_ms)
    *offsets, listing = [await read for read in reads]
    assert {answer.groups[0].error_code for answer in offsets} == {ErrorCode.NOT_COORDINATOR}
    assert listing.error_code == REFUSED


async def test_errors_are_refused(world: Coordinator) -> None:
    assert await world.commit_one(5) == 0
    world.expire_lease()
    assert (await world.beat("unknown", 3)).error_code == REFUSED, "another coordinator may know it"
    assert await world.heartbeat("unknown", 3) == REFUSED
    assert await world.commit_one(6, member_id="unknown", generation_id_or_member_epoch=3) == REFUSED


async def test_fenced_broker_coordinates_nothing(world: Coordinator) -> None:
    joined = await world.beat("m", 0)
    world.lease.end_ms = None
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED
    assert await world.commit_one(5) == REFUSED


async def test_consumer_member_is_answered_for_nine_tenths_of_its_session(world: Coordinator) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    end_ms = CONFIG.consumer_session_timeout_ms * 9 // 10
    for expired_ms in (0, 10_000, end_ms - 2):
        world.clock.now_ms = world.lease.end_ms + expired_ms  # type: ignore[operator]
        world.service.tick()
        assert (await world.beat("m", joined.member_epoch)).error_code == 0
    world.clock.now_ms += 1
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_member_that_a_pending_record_removes_gets_no_answer_without_error(
    world: Coordinator,
) -> None:
    """The next leader may have that record, and would then have assigned the partitions to others."""
    joined = await world.beat("m", 0)
    world.writer.hold = True
    await world.pass_time(CONFIG.consumer_session_timeout_ms + 1)
    world.expire_lease()
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_member_with_a_rebalance_timeout_below_its_session_is_answered_for_less(
    world: Coordinator,
) -> None:
    """A new coordinator reassigns its partitions if it does not revoke them in that time."""
    joined = await world.beat("m", 0, rebalance_timeout_ms=10_000)
    world.expire_lease()
    world.clock.now_ms += 8_998
    assert (await world.beat("m", joined.member_epoch)).error_code == 0
    world.clock.now_ms += 1
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_classic_member_is_answered_for_nine_tenths_of_its_session(world: Coordinator) -> None:
    member = await world.single()
    world.expire_lease()
    world.clock.now_ms += 8_998
    assert await world.heartbeat(member, 1) == 0
    world.clock.now_ms += 1
    assert await world.heartbeat(member, 1) == REFUSED


async def test_commits_that_wait_for_the_replicas_do_not_keep_heartbeats_waiting(
    world: Coordinator,
) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    world.writer.hold = True
    commit = asyncio.ensure_future(world.commit_one(5, group_id="simple"))
    await settle()
    assert (await world.beat("m", joined.member_epoch)).error_code == 0
    assert not commit.done()
    world.release()
    assert await commit == 0


async def test_past_the_lease_nothing_changes_and_sessions_restart_with_the_next_lease(
    world: Coordinator,
) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    before = (world.hosted.shard.state, len(world.writer.logs[0]))
    for _ in range(100):
        await world.pass_time(2_000)
        await world.beat("m", joined.member_epoch)
    assert (world.hosted.shard.state, len(world.writer.logs[0])) == before
    world.regain_lease()
    await world.pass_time(1)
    await world.pass_time(CONFIG.consumer_session_timeout_ms - 1_000)
    assert (await world.beat("m", joined.member_epoch)).error_code == 0


async def test_no_member_is_removed_past_the_lease_even_without_requests(world: Coordinator) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    await world.pass_time(1)
    await world.pass_time(2 * CONFIG.consumer_session_timeout_ms)
    assert present(world.hosted.shard.state.consumer_group("g")).members
    world.regain_lease()
    await world.pass_time(1)
    assert (await world.beat("m", joined.member_epoch)).error_code == 0


async def test_classic_rebalance_waits_until_the_lease_is_back(world: Coordinator) -> None:
    member = await world.single()
    world.expire_lease()
    state = world.hosted.shard.state
    newcomer, again = world.join(), world.join(member)
    await settle()
    await world.pass_time(4_000)
    await settle()
    assert not newcomer.done()
    assert world.hosted.shard.state is state
    assert await world.heartbeat(member, 1) == 0, "it has not been told to rejoin"
    world.regain_lease()
    await world.pass_time(1)
    await settle()
    await world.pass_time(1)
    answers = [await newcomer, await again]
    assert {answer.error_code for answer in answers} == {0}
    assert {answer.generation_id for answer in answers} == {2}


async def test_request_that_waits_for_the_lease_times_out(world: Coordinator) -> None:
    world.expire_lease()
    first = world.join()
    await settle()
    await world.pass_time(CONFIG.offset_commit_timeout_ms)
    assert (await first).error_code == REFUSED
    second = world.join()
    await settle()
    world.service.on_resigned(0)
    assert (await second).error_code == ErrorCode.NOT_COORDINATOR


async def test_member_that_is_only_in_the_uncommitted_state_gets_no_answer_without_error(
    world: Coordinator,
) -> None:
    world.writer.hold = True
    joining = world.beat("m", 0)
    await settle()
    world.expire_lease()
    assert (await world.beat("m", 1)).error_code == REFUSED
    world.release()
    assert (await joining).error_code == 0


def test_answer_that_grants_no_lease_extends_none() -> None:
    """It may come from a deposed controller: it proves nothing, not even about the past."""
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(7)
    logged = SimpleNamespace(fenced=False, epoch=7)
    lifecycle.handle_registration_change(logged)  # type: ignore[arg-type]
    answer = {"is_caught_up": True, "is_fenced": False, "should_shut_down": False}
    lifecycle.handle_heartbeat_answer(1_000, lease_ms=0, **answer)
    assert lifecycle.expired_ms(1_000) is None, "there was none"
    lifecycle.handle_heartbeat_answer(2_000, lease_ms=500, **answer)
    assert lifecycle.expired_ms(2_499) == 0
    assert lifecycle.expired_ms(2_500) == 1
    for sent_ms in range(3_000, 60_000, 1_000):
        lifecycle.handle_heartbeat_answer(sent_ms, lease_ms=0, **answer)
    assert lifecycle.expired_ms(60_000) == 57_501
    lifecycle.handle_stale_epoch()
    assert lifecycle.expired_ms(60_000) is None
