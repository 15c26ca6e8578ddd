"""Static members of classic groups: their places are kept while they are away."""

import asyncio

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import MemberIdentity
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import DELAY_MS, REBALANCE_MS, SESSION_MS, Classic, running_classic
from tests.waits import settle

world = in_loop(running_classic)


async def static_pair(world: Classic) -> dict[str, str]:
    """Two static members in generation 1, by instance id; i0 leads."""
    joins = [world.join(group_instance_id=f"i{i}") for i in range(2)]
    await settle()
    await world.pass_time(DELAY_MS)
    await world.pass_time(DELAY_MS)
    answers = await asyncio.gather(*joins)
    ids = {f"i{i}": answer.member_id for i, answer in enumerate(answers)}
    assert answers[0].leader == ids["i0"]
    syncs = [world.sync(ids["i1"], 1, group_instance_id="i1")]
    syncs.append(world.sync(ids["i0"], 1, {ids["i0"]: b"0", ids["i1"]: b"1"}, group_instance_id="i0"))
    assert [answer.assignment for answer in await asyncio.gather(*syncs)] == [b"1", b"0"]
    return ids


async def test_restarted_static_member_keeps_its_assignment_without_a_rebalance(world: Classic) -> None:
    ids = await static_pair(world)
    answer = await world.join(group_instance_id="i1")
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id != ids["i1"]
    assert (await world.sync(answer.member_id, 1, group_instance_id="i1")).assignment == b"1"
    assert await world.heartbeat(ids["i0"], 1, group_instance_id="i0") == 0
    fenced = await world.heartbeat(ids["i1"], 1, group_instance_id="i1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    await world.fail_over()
    assert await world.heartbeat(answer.member_id, 1, group_instance_id="i1") == 0


async def test_restarted_static_leader_does_not_assign_again(world: Classic) -> None:
    ids = await static_pair(world)
    old = await world.join(group_instance_id="i0", version=5)
    assert (old.leader, old.members) == (ids["i0"], [])
    new = await world.join(group_instance_id="i0", version=9)
    assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 2)


async def test_static_member_leaves_by_its_instance_id(world: Classic) -> None:
    ids = await static_pair(world)
    answer = await world.leave(
        MemberIdentity(member_id="", group_instance_id="i1"),
        MemberIdentity(member_id="x", group_instance_id="i0"),
        MemberIdentity(member_id="", group_instance_id="nope"),
    )
    codes = [m.error_code for m in answer.members]
    assert codes == [0, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    rebalancing = await world.heartbeat(ids["i0"], 1, group_instance_id="i0")
    assert rebalancing == ErrorCode.REBALANCE_IN_PROGRESS


async def test_rebalance_waits_for_an_absent_static_member_until_its_session_ends(world: Classic) -> None:
    ids = await static_pair(world)
    join = world.join(ids["i0"], group_instance_id="i0", session_timeout_ms=SESSION_MS)
    await settle()
    await world.pass_time(SESSION_MS - 1)
    assert not join.done()
    await world.pass_time(1)
    answer = await join
    assert len(answer.members) == 1, "its session had ended"


async def test_absent_static_leader_keeps_its_place_but_not_the_lead(world: Classic) -> None:
    long_ms = 2 * REBALANCE_MS
    joins = [world.join(group_instance_id=f"i{i}", session_timeout_ms=long_ms) for i in range(2)]
    await settle()
    await world.pass_time(DELAY_MS)
    await world.pass_time(DELAY_MS)
    leader, other = [answer.member_id for answer in await asyncio.gather(*joins)]
    await world.sync(leader, 1, group_instance_id="i0")
    await world.sync(other, 1, group_instance_id="i1")
    changed = world.join(
        other, group_instance_id="i1", protocols={"range": b"changed"}, session_timeout_ms=long_ms
    )
    await settle()
    await world.pass_time(REBALANCE_MS)
    answer = await changed
    assert (answer.generation_id, answer.leader) == (2, other)
    assert {m.member_id for m in answer.members} == {leader, other}


async def test_restarted_static_member_fences_its_former_self_that_waits_for_an_assignment(
    world: Classic,
) -> None:
    ids = await static_pair(world)
    await asyncio.gather(*(world.join(ids[i], group_instance_id=i) for i in ("i0", "i1")))
    waits = world.sync(ids["i1"], 2, group_instance_id="i1")
    await settle()
    assert not waits.done()
    world.join(group_instance_id="i1")
    await settle()
    assert waits.done() and waits.result().error_code == ErrorCode.FENCED_INSTANCE_ID
