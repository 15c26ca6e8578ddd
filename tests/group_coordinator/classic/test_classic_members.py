"""Members of classic groups that leave, fall silent or do not rejoin in time."""

import asyncio

from pykraft.kafka_protocol.errors import ErrorCode
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import DELAY_MS, REBALANCE_MS, SESSION_MS, Classic, running_classic
from tests.waits import settle

world = in_loop(running_classic)


async def test_leaving_member_makes_the_others_rebalance(world: Classic) -> None:
    leader, other = await world.stable_pair()
    answer = await world.leave(other)
    assert [m.error_code for m in answer.members] == [0]
    assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    response = await world.join(leader)
    assert (response.generation_id, len(response.members)) == (2, 1)
    assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_leader_that_leaves_is_replaced(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.leave(leader)
    response = await world.join(other)
    assert (response.leader, response.generation_id) == (other, 2)


async def test_leader_that_fails_before_it_assigns_is_removed(world: Classic) -> None:
    leader, other = await world.stable_pair()
    rejoin_leader = world.join(leader)
    rejoin_other = world.join(other)
    await asyncio.gather(rejoin_leader, rejoin_other)
    waiting = world.sync(other, 2)
    await settle()
    await world.pass_time(SESSION_MS)
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    response = await world.join(other)
    assert (response.leader, response.generation_id) == (other, 3)


async def test_silent_member_is_removed_and_the_rest_rebalances(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.pass_time(SESSION_MS - 1)
    assert await world.heartbeat(leader, 1) == 0
    await world.pass_time(1)
    assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_member_that_does_not_rejoin_in_time_is_dropped(world: Classic) -> None:
    leader, other = await world.stable_pair()
    join = world.join(leader)
    await settle()
    for _ in range(REBALANCE_MS // 5_000):
        assert await world.heartbeat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert not join.done()
        await world.pass_time(5_000)
    assert (await join).generation_id == 2
    assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_member_that_never_fetches_its_assignment_is_removed(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    await world.sync(leader, 2, {leader: b"L"})
    for _ in range(REBALANCE_MS // 5_000):
        await world.heartbeat(leader, 2)
        await world.heartbeat(other, 2)
        await world.pass_time(5_000)
    assert await world.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await world.heartbeat(other, 2) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_rebalance_waits_for_a_member_that_was_given_an_id(world: Classic) -> None:
    leader, other = await world.stable_pair()
    newcomer = await world.member_id()
    joins = [world.join(leader), world.join(other)]
    await settle()
    assert not any(join.done() for join in joins)
    joins.append(world.join(newcomer))
    assert {answer.generation_id for answer in await asyncio.gather(*joins)} == {2}


async def test_member_that_never_joins_with_its_id_is_not_waited_for_long(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.member_id()
    joins = [world.join(leader), world.join(other)]
    await settle()
    await world.pass_time(SESSION_MS)
    assert {answer.generation_id for answer in await asyncio.gather(*joins)} == {2}


async def test_last_member_leaves_an_empty_group_with_its_generation(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.leave(leader, other)
    assert (await world.state()).group_state == "Empty"
    await world.fail_over()
    assert (await world.state()).group_state == "Empty"
    join = world.join(await world.member_id())
    await settle()
    await world.pass_time(DELAY_MS)
    assert (await join).generation_id == 3


async def test_member_that_commits_is_alive(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await world.pass_time(SESSION_MS - 1)
    assert await world.commit_as(leader, 1) == 0
    assert await world.heartbeat(other, 1) == 0
    await world.pass_time(SESSION_MS - 1)
    assert await world.commit_as(leader, 1) == 0


async def test_member_that_is_removed_while_it_joins_is_answered(world: Classic) -> None:
    leader, _ = await world.stable_pair()
    waits = world.join(leader)
    await settle()
    assert not waits.done()
    await world.leave(leader)
    await settle()
    assert waits.done() and waits.result().error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_member_that_is_removed_while_it_waits_for_its_assignment_is_answered(world: Classic) -> None:
    leader, other = await world.stable_pair()
    await asyncio.gather(world.join(leader), world.join(other))
    waits = world.sync(other, 2)
    await settle()
    assert not waits.done()
    await world.leave(other)
    await settle()
    assert waits.done() and waits.result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
