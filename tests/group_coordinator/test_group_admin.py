"""Describing, listing and deleting groups."""

from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from pykraft.kafka_protocol.primitives import MAX_STRING_BYTES
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Coordinator, running_broker
from tests.group_coordinator.requests import join_group

world = in_loop(running_broker)


async def test_groups_are_listed_by_state_and_type(world: Coordinator) -> None:
    await world.beat()
    await world.commit({("t", 0): 1}, group_id="simple")
    everything = await world.wire(ListGroupsRequest(), 5)
    assert {(g.group_id, g.group_type, g.group_state, g.protocol_type) for g in everything.groups} == {
        ("g", "consumer", "Stable", "consumer"),
        ("simple", "classic", "Empty", ""),
    }
    by_state = await world.wire(ListGroupsRequest(states_filter=["empty"]), 4)
    assert [g.group_id for g in by_state.groups] == ["simple"]
    by_type = await world.wire(ListGroupsRequest(types_filter=["consumer"]), 5)
    assert [g.group_id for g in by_type.groups] == ["g"]


@pytest.mark.parametrize(
    ("states", "types"), [(["nonsense"], []), ([], ["nonsense"]), (["Dead"], ["classic"])]
)
async def test_filters_that_match_nothing_list_nothing(
    world: Coordinator, states: list[str], types: list[str]
) -> None:
    await world.beat()
    await world.commit({("t", 0): 1}, group_id="simple")
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert (await world.wire(request, 5)).groups == []
    some = ListGroupsRequest(
        states_filter=[*states, " EMPTY "] if states else [], types_filter=[*types, "Classic"]
    )
    assert [it.group_id for it in (await world.wire(some, 5)).groups] == ["simple"]


async def test_group_that_is_missing_is_told_from_one_of_the_other_kind(world: Coordinator) -> None:
    await world.beat()
    await world.commit({("t", 0): 1}, group_id="simple")
    classic = (await world.wire(DescribeGroupsRequest(groups=["g", "x", ""]), 6)).groups
    assert [it.error_message for it in classic] == [
        "Group g is not a classic group.",
        "Group x not found.",
        "Group  not found.",
    ]
    consumer = (await world.wire(ConsumerGroupDescribeRequest(group_ids=["simple", "x", ""]), 1)).groups
    assert [(it.error_code, it.error_message) for it in consumer] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group simple is not a consumer group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]


async def test_longest_name_of_a_group_that_is_missing_fits_into_the_answer(world: Coordinator) -> None:
    name = "x" * MAX_STRING_BYTES
    classic = (await world.wire(DescribeGroupsRequest(groups=[name]), 6)).groups
    consumer = (await world.wire(ConsumerGroupDescribeRequest(group_ids=[name]), 1)).groups
    for (it,) in (classic, consumer):
        assert (it.group_id, it.error_code) == (name, ErrorCode.GROUP_ID_NOT_FOUND)
        assert it.error_message is not None and it.error_message.startswith("Group xxx")


async def test_group_that_only_waits_for_a_member_to_join_is_deleted(world: Coordinator) -> None:
    join = join_group()
    pending = await world.wire(join, 5)
    assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = await world.wire(DeleteGroupsRequest(groups_names=["g", ""]), 2)
    assert [it.error_code for it in answer.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    await world.pass_time(60_000)  # the member's time to join passes without effect
    join.member_id = pending.member_id
    assert (await world.wire(join, 5)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_each_describe_api_refers_the_client_to_the_other(world: Coordinator) -> None:
    await world.beat()
    await world.commit({("t", 0): 1}, group_id="simple")
    classic = (await world.wire(DescribeGroupsRequest(groups=["g", "simple"]), 6)).groups
    assert [(g.group_state, g.error_code) for g in classic] == [
        ("Dead", ErrorCode.GROUP_ID_NOT_FOUND),
        ("Empty", 0),
    ]
    assert (await world.wire(DescribeGroupsRequest(groups=["g"]), 5)).groups[0].error_code == 0
    consumer = await world.wire(ConsumerGroupDescribeRequest(group_ids=["g", "simple"]), 1)
    group, other = consumer.groups
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_host) == ("m", 2, "/127.0.0.1")
    assert member.assignment == member.target_assignment
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]


async def test_only_empty_groups_are_deleted_with_everything_they_have(world: Coordinator) -> None:
    await world.beat()
    await world.commit({("t", 0): 1}, group_id="simple")
    await world.commit({("t", 0): 1}, 9, member_id="m", generation_id_or_member_epoch=2)
    names = ["g", "simple", "nobody"]
    answer = await world.wire(DeleteGroupsRequest(groups_names=names), 2)
    assert {r.group_id: r.error_code for r in answer.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    await world.beat("m", -1)
    assert (await world.wire(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == 0
    await world.fail_over()
    assert (await world.wire(ListGroupsRequest(), 5)).groups == []
    assert await world.fetch() == {}


async def test_empty_groups_change_protocol_and_keep_their_offsets(world: Coordinator) -> None:
    await world.commit({("t", 0): 1})
    assert (await world.beat()).error_code == 0, "an empty classic group is replaced"
    join = join_group()
    await world.beat("m", -1)
    assert (await world.wire(join, 5)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await world.beat()).error_code == 0, "an id that was given out is no member"
    assert await world.fetch() == {("t", 0): 1}


def test_apis_of_share_and_streams_groups_are_not_offered() -> None:
    """Kafka Streams and share consumers then say so themselves, or use the classic protocol."""
    streams = {88, 89}
    share = {76, 77, 78, 79, *range(83, 88), *range(90, 93)}
    assert not (streams | share) & tools.ROWS.keys()


async def test_consumer_groups_are_not_described_where_their_protocol_is_off(world: Coordinator) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    off = replace(world.config, rebalance_protocols=("classic",))
    world.service.on_config(off)
    answer = await world.wire(request, 1)
    assert [group.error_code for group in answer.groups] == [ErrorCode.UNSUPPORTED_VERSION]
    world.service.on_config(world.config)
    assert (await world.wire(request, 1)).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_changed_settings_of_the_broker_hold_from_the_next_heartbeat_on(
    world: Coordinator,
) -> None:
    await world.beat("a")
    world.service.on_config(replace(world.config, consumer_assignment_interval_ms=60_000))
    assert (await world.beat("b")).member_epoch == 2
    world.service.on_config(replace(world.config, consumer_assignment_interval_ms=0))
    assert (await world.beat("b", 2)).member_epoch == 3
