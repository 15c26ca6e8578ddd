"""Past the lease of the broker: what is accepted, what is answered and for how long, and what is refused."""

import asyncio
from types import SimpleNamespace
from typing import Any

from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import ListGroupsRequest
from pykraft.kafka_protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import CONFIG, Leased, World, running_leased, running_world
from tests.narrowing import present
from tests.waits import settle

world = in_loop(running_leased)
coordinator = in_loop(running_world)


async def test_coordinator_past_its_lease_answers_no_member(coordinator: World) -> None:
    """Another coordinator may have reassigned the member's partitions, or accepted newer commits."""
    await coordinator.lead()
    joined = await coordinator.beat("m", 0)
    assert joined.error_code == 0
    coordinator.lease.valid = False
    refused = await coordinator.beat("m", joined.member_epoch)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await coordinator.fetch())[0] == ErrorCode.NOT_COORDINATOR, "older consumers know no other error"
    assert await coordinator.commit(5, group_id="simple") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.lease.valid = True
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0


async def test_members_refused_past_the_lease_are_not_removed_when_their_sessions_expire(
    coordinator: World,
) -> None:
    await coordinator.lead()
    joined = await coordinator.beat("m", 0)
    coordinator.pass_time(40_000)
    coordinator.lease.valid = False
    refused = await coordinator.beat("m", joined.member_epoch)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.pass_time(60_000)
    coordinator.lease.valid = True
    coordinator.pass_time(1)
    coordinator.pass_time(44_000)
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0
    coordinator.pass_time(45_001)
    gone = await coordinator.beat("m", joined.member_epoch)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "the session runs again"


async def test_lapse_between_two_ticks_is_noticed_by_the_refusal_alone(coordinator: World) -> None:
    await coordinator.lead()
    joined = await coordinator.beat("m", 0)
    coordinator.lease.valid = False
    coordinator.clock.now_ms += 40_000
    await coordinator.beat("m", joined.member_epoch)
    coordinator.lease.valid = True
    coordinator.pass_time(6_000)
    assert (await coordinator.beat("m", joined.member_epoch)).error_code == 0


REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_commits_are_accepted_and_answered_when_the_replicas_have_them(world: Leased) -> None:
    world.expire_lease()
    assert await world.commit(5) == 0
    world.writer.hold = True
    waiting = asyncio.ensure_future(world.commit(6))
    await settle()
    assert not waiting.done()
    world.replicate()
    assert await waiting == 0


async def test_commit_that_the_replicas_never_get_is_not_acknowledged(world: Leased) -> None:
    world.expire_lease()
    world.writer.hold = True
    waiting = asyncio.ensure_future(world.commit(6))
    await settle()
    world.pass_time(CONFIG.offset_commit_timeout_ms)
    assert await waiting == REFUSED


async def test_late_answer_is_withheld_even_if_the_replicas_confirm_first(world: Leased) -> None:
    """The process was stalled: the followers' fetches are older than what a new coordinator did meanwhile."""
    world.writer.hold = True
    joining = world.beat("m", 0)
    await settle()
    world.clock.now_ms += 60_000
    world.replicate()
    assert (await joining).error_code == REFUSED


def read_everything(w: Leased) -> list[asyncio.Task[Any]]:
    """Requests for offsets, which need stable ones or do not, and for listings."""
    reads: list[asyncio.Task[Any]] = []
    for require_stable in (False, True):
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        reads.append(w.send(OffsetFetchRequest(groups=[group], require_stable=require_stable), 8))
    return [*reads, w.send(ListGroupsRequest(), 5)]


async def test_offsets_and_listings_wait_for_the_lease_and_are_those_of_that_moment(world: Leased) -> None:
    assert await world.commit(5) == 0
    world.expire_lease()
    reads = read_everything(world)
    await settle()
    world.pass_time(CONFIG.offset_commit_timeout_ms - 2)
    await settle()
    assert not any(read.done() for read in reads)
    assert await world.commit(6) == 0
    world.regain()
    world.pass_time(1)
    *offsets, listing = [await read for read in reads]
    for answer in offsets:
        assert answer.groups[0].error_code == 0
        assert answer.groups[0].topics[0].partitions[0].committed_offset == 6
    assert listing.error_code == 0


async def test_offsets_and_listings_are_refused_when_the_lease_does_not_come_back(world: Leased) -> None:
    assert await world.commit(5) == 0
    world.expire_lease()
    reads = read_everything(world)
    await settle()
    world.pass_time(CONFIG.offset_commit_timeout_ms)
    *offsets, listing = [await read for read in reads]
    assert {answer.groups[0].error_code for answer in offsets} == {ErrorCode.NOT_COORDINATOR}
    assert listing.error_code == REFUSED


async def test_errors_are_refused(world: Leased) -> None:
    assert await world.commit(5) == 0
    world.expire_lease()
    assert (await world.beat("unknown", 3)).error_code == REFUSED, "another coordinator may know it"
    assert (await world.heartbeat("unknown", 3)).error_code == REFUSED
    assert await world.commit(6, member_id="unknown", generation_id_or_member_epoch=3) == REFUSED


async def test_fenced_broker_coordinates_nothing(world: Leased) -> None:
    joined = await world.beat("m", 0)
    world.until.end_ms = None
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED
    assert await world.commit(5) == REFUSED


async def test_consumer_member_is_answered_for_nine_tenths_of_its_session(world: Leased) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    end_ms = CONFIG.consumer_session_timeout_ms * 9 // 10
    for expired_ms in (0, 10_000, end_ms - 2):
        world.clock.now_ms = world.until.end_ms + expired_ms  # type: ignore[operator]
        world.service.tick()
        assert (await world.beat("m", joined.member_epoch)).error_code == 0
    world.clock.now_ms += 1
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_member_that_a_pending_record_removes_gets_no_answer_without_error(world: Leased) -> None:
    """The next leader may have that record, and would then have assigned the partitions to others."""
    joined = await world.beat("m", 0)
    world.writer.hold = True
    world.pass_time(CONFIG.consumer_session_timeout_ms + 1)
    world.expire_lease()
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_member_with_a_rebalance_timeout_below_its_session_is_answered_for_less(world: Leased) -> None:
    """A new coordinator reassigns its partitions if it does not revoke them in that time."""
    joined = await world.beat("m", 0, rebalance_timeout_ms=10_000)
    world.expire_lease()
    world.clock.now_ms += 8_998
    assert (await world.beat("m", joined.member_epoch)).error_code == 0
    world.clock.now_ms += 1
    assert (await world.beat("m", joined.member_epoch)).error_code == REFUSED


async def test_classic_member_is_answered_for_nine_tenths_of_its_session(world: Leased) -> None:
    member, generation = await world.join_classic()
    world.expire_lease()
    world.clock.now_ms += 8_998
    assert (await world.heartbeat(member, generation)).error_code == 0
    world.clock.now_ms += 1
    assert (await world.heartbeat(member, generation)).error_code == REFUSED


async def test_commits_that_wait_for_the_replicas_do_not_keep_heartbeats_waiting(world: Leased) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    world.writer.hold = True
    commit = asyncio.ensure_future(world.commit(5, group_id="simple"))
    await settle()
    assert (await world.beat("m", joined.member_epoch)).error_code == 0
    assert not commit.done()
    world.replicate()
    assert await commit == 0


async def test_past_the_lease_nothing_changes_and_sessions_restart_with_the_next_lease(world: Leased) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    before = (world.service._runtime._hosted[0].shard.state, len(world.writer.logs[0]))
    for _ in range(100):
        world.pass_time(2_000)
        await world.beat("m", joined.member_epoch)
    assert (world.service._runtime._hosted[0].shard.state, len(world.writer.logs[0])) == before
    world.regain()
    world.pass_time(1)
    world.pass_time(CONFIG.consumer_session_timeout_ms - 1_000)
    assert (await world.beat("m", joined.member_epoch)).error_code == 0


async def test_no_member_is_removed_past_the_lease_even_without_requests(world: Leased) -> None:
    joined = await world.beat("m", 0)
    world.expire_lease()
    world.pass_time(1)
    world.pass_time(2 * CONFIG.consumer_session_timeout_ms)
    assert present(world.service._runtime._hosted[0].shard.state.consumer_group("g")).members
    world.regain()
    world.pass_time(1)
    assert (await world.beat("m", joined.member_epoch)).error_code == 0


async def test_classic_rebalance_waits_until_the_lease_is_back(world: Leased) -> None:
    member, generation = await world.join_classic()
    world.expire_lease()
    state = world.service._runtime._hosted[0].shard.state
    newcomer, again = world.join(), world.join(member)
    await settle()
    world.pass_time(4_000)
    await settle()
    assert not newcomer.done()
    assert world.service._runtime._hosted[0].shard.state is state
    assert (await world.heartbeat(member, generation)).error_code == 0, "it has not been told to rejoin"
    world.regain()
    world.pass_time(1)
    await settle()
    world.pass_time(1)
    answers = [await newcomer, await again]
    assert {answer.error_code for answer in answers} == {0}
    assert {answer.generation_id for answer in answers} == {generation + 1}


async def test_request_that_waits_for_the_lease_times_out(world: Leased) -> None:
    world.expire_lease()
    first = world.join()
    await settle()
    world.pass_time(CONFIG.offset_commit_timeout_ms)
    assert (await first).error_code == REFUSED
    second = world.join()
    await settle()
    world.service.on_resigned(0)
    assert (await second).error_code == ErrorCode.NOT_COORDINATOR


async def test_member_that_is_only_in_the_uncommitted_state_gets_no_answer_without_error(
    world: Leased,
) -> None:
    world.writer.hold = True
    joining = world.beat("m", 0)
    await settle()
    world.expire_lease()
    assert (await world.beat("m", 1)).error_code == REFUSED
    world.replicate()
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
