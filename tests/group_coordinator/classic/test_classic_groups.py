"""Outcomes of classic groups, through the service on a real event loop with time set by hand."""

import asyncio
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import DELAY_MS, SESSION_MS, Classic, running_classic
from tests.waits import settle

world = in_loop(running_classic)


async def test_two_members_join_in_two_steps_and_get_their_assignments(world: Classic) -> None:
    leader, other = await world.stable_pair()
    group = await world.state()
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    assert {m.member_id: m.member_assignment for m in group.members} == {leader: b"L", other: b"O"}
    assert await world.heartbeat(leader, 1) == 0


async def test_old_client_without_a_member_id_is_accepted_at_once(world: Classic) -> None:
    join = world.join(version=3)
    await settle()
    await world.pass_time(DELAY_MS)
    response = await join
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, response.member_id)


async def test_first_rebalance_waits_longer_while_new_members_join(world: Classic) -> None:
    first, second = await world.member_id(), await world.member_id()
    joins = [world.join(first)]
    await settle()
    await world.pass_time(DELAY_MS - 1)
    joins.append(world.join(second))
    await settle()
    await world.pass_time(1)
    assert not any(join.done() for join in joins)
    await world.pass_time(DELAY_MS)
    assert [join.result().generation_id for join in joins] == [1, 1]


async def test_generation_and_assignment_survive_a_failover(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.fail_over()
    assert await world.heartbeat(leader, 1) == 0
    assert await world.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION
    assert (await world.sync(other, 1)).assignment == b"O"
    assert await world.commit_as(other, 1) == 0
    await world.pass_time(SESSION_MS - 1)
    assert (await world.state()).group_state == "Stable"


async def test_unfinished_rebalance_does_not_survive_a_failover(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    waiting = world.sync(other, 2)
    await settle()
    await world.fail_over()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert (await world.sync(other, 2)).error_code == ErrorCode.ILLEGAL_GENERATION


async def test_repeated_join_gets_the_same_generation_again(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    again = await world.join(leader)
    assert (again.generation_id, len(again.members)) == (2, 2)
    assert (await world.join(other)).generation_id == 2


async def test_stable_follower_that_repeats_its_join_starts_no_rebalance(world: Classic) -> None:
    leader, other = await world.stable_pair()
    assert (await world.join(other)).generation_id == 1
    assert await world.heartbeat(leader, 1) == 0


async def test_changed_subscription_rebalances(world: Classic) -> None:
    leader, other = await world.stable_pair()
    join = world.join(other, protocols={"range": b"other topics"})
    await settle()
    assert not join.done()
    assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_protocol_is_chosen_among_common_ones_by_vote(world: Classic) -> None:
    ids = [await world.member_id() for _ in range(3)]
    joins: list[asyncio.Task[Any]] = []
    for protocols in (
        {"a": b"", "b": b""},
        {"b": b"", "a": b"", "c": b""},
        {"c": b"", "b": b"", "a": b""},
    ):
        joins.append(world.join(ids[len(joins)], protocols=protocols))
    await settle()
    await world.pass_time(DELAY_MS)
    await world.pass_time(DELAY_MS)
    assert {(await join).protocol_name for join in joins} == {"b"}


@pytest.mark.parametrize(
    "fields", [{"protocols": {"other": b""}}, {"protocols": {}}, {"protocol_type": "connect"}]
)
async def test_member_without_a_common_protocol_is_refused(world: Classic, fields: dict[str, Any]) -> None:
    await world.stable_pair()
    assert (await world.join(**fields)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("member_id", "fields", "code"),
    [
        ("", {"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("", {"session_timeout_ms": 10**7}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("nobody", {}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_impossible_join_is_refused(
    world: Classic, member_id: str, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert (await world.join(member_id, **fields)).error_code == code


async def test_full_group_accepts_no_more_members(world: Classic) -> None:
    """Members count, not ids that were given out: nobody may use those."""
    for _ in range(9):
        await world.member_id()
    ids = [await world.member_id() for _ in range(4)]
    late = await world.member_id()
    joins = [world.join(member_id) for member_id in ids]
    await settle()
    refused = await world.join(late)
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (await world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    await world.pass_time(DELAY_MS)
    await world.pass_time(DELAY_MS)
    assert {answer.error_code for answer in await asyncio.gather(*joins)} == {ErrorCode.NONE}
    assert (await world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_sync_and_heartbeat_of_unknown_members_are_refused(world: Classic) -> None:
    assert await world.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = await world.stable_pair()
    assert (await world.sync("nobody", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await world.sync(leader, 9)).error_code == ErrorCode.ILLEGAL_GENERATION
    refused = await world.sync(leader, 1, protocol_name="sticky")
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_commit_needs_the_current_generation(world: Classic) -> None:
    leader, other = await world.stable_pair()
    assert await world.commit_as(leader, 1) == 0
    assert await world.commit_as(leader, 0) == ErrorCode.ILLEGAL_GENERATION
    assert await world.commit_as("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit_as("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    await asyncio.gather(world.join(leader), world.join(other))
    assert await world.commit_as(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_assignment_is_not_returned_before_it_is_replicated(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    world.writer.hold = True
    syncs = [world.sync(other, 2), world.sync(leader, 2, {leader: b"L2", other: b"O2"})]
    await settle()
    assert not any(sync.done() for sync in syncs)
    world.release()
    assert [answer.assignment for answer in await asyncio.gather(*syncs)] == [b"O2", b"L2"]


async def test_assignment_that_cannot_be_written_is_not_returned(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    waiting = world.sync(other, 2)
    refused = await world.sync(leader, 2, {leader: b"L2", other: b"O2"})
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not waiting.done()
    world.writer.refuse = None
    assert (await world.sync(leader, 2, {leader: b"L2", other: b"O2"})).assignment == b"L2"
    assert (await waiting).assignment == b"O2"
