"""Answers that only the comparison with Apache Kafka taught (``make groups-differential``)."""

import asyncio

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import DELAY_MS, Classic, codes, running_classic
from tests.waits import settle

world = in_loop(running_classic)


async def stable_one(world: Classic, **fields: str) -> str:
    """The id of the only member of a stable group, generation 1."""
    joining = world.join("" if fields else await world.member_id(), **fields)  # type: ignore[arg-type]
    await settle()
    await world.pass_time(DELAY_MS)
    member_id = str((await joining).member_id)
    assert (await world.sync(member_id, 1, {member_id: b"share"})).assignment == b"share"
    return member_id


async def test_sync_names_its_protocol_from_version_5_on(world: Classic) -> None:
    member_id = await stable_one(world)
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    for fields, code in (
        (named, ErrorCode.NONE),
        (named | {"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (named | {"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        sync = SyncGroupRequest(group_id="g", member_id=member_id, generation_id=1, **fields)
        assert (await world.send(sync, 5)).error_code == code
        assert (await world.send(sync, 4)).error_code == ErrorCode.NONE


async def test_static_member_may_join_again_without_its_instance_id(world: Classic) -> None:
    """The member id says who it is; the member stays static."""
    member_id = await stable_one(world, group_instance_id="i")
    joined = await world.join(member_id)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 2)
    assert [member.group_instance_id for member in joined.members] == ["i"]
    unknown = await world.join(member_id, group_instance_id="other")
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_only_member_must_keep_a_protocol_that_it_had(world: Classic) -> None:
    member_id = await stable_one(world)
    refused = await world.join(member_id, protocols={"sticky": b""})
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await world.join(member_id, protocols={"sticky": b"", "range": b""})).error_code == ErrorCode.NONE


async def test_member_may_join_a_group_whose_last_member_has_just_left(world: Classic) -> None:
    member_id = await stable_one(world)
    next_id = await world.member_id()
    await world.leave(member_id)
    assert (await world.state()).group_state == "PreparingRebalance"
    joined = await world.join(next_id, protocols={"sticky": b""})
    assert (joined.error_code, joined.protocol_name) == (ErrorCode.NONE, "sticky")


async def test_partitions_that_do_not_exist_are_refused_before_the_group_is_asked(world: Classic) -> None:
    await stable_one(world)
    for partitions, expected in (
        ((0, 99), [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ((99,), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ((0,), [ErrorCode.UNKNOWN_MEMBER_ID]),
    ):
        offsets = {("t", index): 1 for index in partitions}
        answer = await world.commit(offsets, member_id="nobody", generation_id_or_member_epoch=1)
        assert codes(answer) == expected


async def test_group_of_nobody_but_given_ids_may_be_deleted(world: Classic) -> None:
    member_id = await world.member_id()
    deleted = await world.send(DeleteGroupsRequest(groups_names=["g", ""]), 2)
    assert {result.group_id: result.error_code for result in deleted.results} == {
        "g": ErrorCode.NONE,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert (await world.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_empty_group_id_is_refused_where_kafka_refuses_it(world: Classic) -> None:
    left = await world.send(LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")]), 5)
    assert (left.error_code, left.members) == (ErrorCode.INVALID_GROUP_ID, [])
    described = await world.send(ConsumerGroupDescribeRequest(group_ids=[""]), 1)
    assert [group.error_code for group in described.groups] == [ErrorCode.INVALID_GROUP_ID]


async def test_member_keeps_its_assignment_until_the_next_one(world: Classic) -> None:
    member_id = await stable_one(world)
    joining = world.join(await world.member_id())
    await settle()
    state = await world.state()
    assert state.group_state == "PreparingRebalance"
    shown = {m.member_id: (m.member_metadata, m.member_assignment) for m in state.members}
    assert shown[member_id] == (b"", b"share")
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)


async def test_given_ids_do_not_fill_a_stable_group(world: Classic) -> None:
    member_id = await stable_one(world)
    for _ in range(world.config.max_size):
        await world.member_id()
    assert await world.heartbeat(member_id, 1) == ErrorCode.NONE
