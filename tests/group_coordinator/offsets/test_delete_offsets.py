"""OffsetDelete: which offsets may go, and that they go in one batch or not at all."""

from collections.abc import Sequence

import pytest

from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.records import OffsetCommitKey
from pykraft.kafka_protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    LeaveGroupRequest,
    ListGroupsRequest,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import Coordinator, running_broker
from tests.waits import settle

SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Answered = tuple[int, dict[tuple[str, int], int]]
TWO = {("t", 0): 5, ("u", 1): 6}


world = in_loop(running_broker)


Topics = Sequence[tuple[str, Sequence[int]]]


def delete_request(topics: Topics, group_id: str = "g") -> OffsetDeleteRequest:
    named = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in topics
    ]
    return OffsetDeleteRequest(group_id=group_id, topics=named)


async def delete(world: Coordinator, topics: Topics, group_id: str = "g") -> Answered:
    """The error of the whole request, and those of the partitions in the order of the answer."""
    answer: OffsetDeleteResponse = await world.wire(delete_request(topics, group_id), 0)
    return answer.error_code, {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


async def join(world: Coordinator, protocol_type: str, metadata: bytes) -> tuple[str, int]:
    """A classic member that has its assignment: member id and generation."""
    waiting = world.join(protocol_type=protocol_type, protocols={"p": metadata})
    await settle()
    await world.pass_time(world.config.initial_rebalance_delay_ms)
    joined = await waiting
    assert (await world.sync(joined.member_id, joined.generation_id)).error_code == 0
    return joined.member_id, joined.generation_id


async def test_deleted_offsets_are_gone_at_once_and_after_a_failover(world: Coordinator) -> None:
    await world.commit({**TWO, ("t", 3): 7})
    assert await delete(world, [("t", [0, 2]), ("u", [1])]) == (
        0,
        {("t", 0): 0, ("t", 2): 0, ("u", 1): 0},
    )
    assert await world.fetch() == {("t", 3): 7}
    await world.fail_over()
    assert await world.fetch() == {("t", 3): 7}


async def test_all_tombstones_are_one_batch_and_each_is_written_once(world: Coordinator) -> None:
    await world.commit(TWO)
    before = len(world.writer.batches)
    await delete(world, [("u", [1, 1]), ("t", [0, 1]), ("u", [1, 0])])
    ((_, _, records),) = world.writer.batches[before:]
    written = [decode_record(key, value) for key, value in records]
    assert [(it.key, it.value) for it in written if it is not None] == [
        (OffsetCommitKey("g", "u", 1), None),
        (OffsetCommitKey("g", "t", 0), None),
    ]


async def test_nothing_is_written_where_there_is_no_offset(world: Coordinator) -> None:
    await world.commit(TWO)
    before = len(world.writer.logs[0])
    assert await delete(world, [("t", [1]), ("u", [0])]) == (0, {("t", 1): 0, ("u", 0): 0})
    assert len(world.writer.logs[0]) == before


async def test_answer_waits_until_the_tombstones_are_committed(world: Coordinator) -> None:
    await world.commit(TWO)
    world.writer.hold = True
    waiting = world.send(delete_request([("t", [0])]), 0)
    await settle()
    assert not waiting.done()
    world.release()
    assert (await waiting).error_code == 0


@pytest.mark.parametrize("refused", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_offsets_stay_if_the_batch_cannot_be_appended(world: Coordinator, refused: ErrorCode) -> None:
    await world.commit(TWO)
    world.writer.refuse = refused
    moved = refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
    code = ErrorCode.NOT_COORDINATOR if moved else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await delete(world, [("t", [0]), ("u", [1])]) == (code, {})
    world.writer.refuse = None
    assert await world.fetch() == TWO


async def test_partitions_that_do_not_exist_are_refused_alone_and_answered_first(
    world: Coordinator,
) -> None:
    await world.commit(TWO)
    code, partitions = await delete(world, [("t", [0, 4, -1]), ("none", [0]), ("u", [1])])
    assert (code, list(partitions.items())) == (
        0,
        [
            (("t", 4), UNKNOWN),
            (("t", -1), UNKNOWN),
            (("t", 0), 0),
            (("none", 0), UNKNOWN),
            (("u", 1), 0),
        ],
    )
    assert await world.fetch() == {}


async def test_group_that_is_not_there_is_refused_whole(world: Coordinator) -> None:
    assert await delete(world, [("t", [0]), ("none", [0])]) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert await delete(world, [("t", [0])], "") == (ErrorCode.INVALID_GROUP_ID, {})
    assert world.writer.batches == []


@pytest.mark.world(leads=False)
async def test_coordinator_that_does_not_lead_the_group_says_so(world: Coordinator) -> None:
    assert await delete(world, [("t", [0])]) == (ErrorCode.NOT_COORDINATOR, {})


async def test_consumer_group_keeps_the_offsets_of_what_it_reads(world: Coordinator) -> None:
    epoch = (await world.beat()).member_epoch
    await world.commit(TWO, 9, member_id="m", generation_id_or_member_epoch=epoch)
    assert await delete(world, [("t", [0]), ("u", [1])]) == (0, {("t", 0): SUBSCRIBED, ("u", 1): 0})
    assert await world.fetch() == {("t", 0): 5}
    await world.beat("m", -1)
    assert await delete(world, [("t", [0])]) == (0, {("t", 0): 0})
    assert await world.fetch() == {}
    listed = await world.wire(ListGroupsRequest(), 5)
    assert [group.group_id for group in listed.groups] == ["g"], "the group itself stays"


@pytest.mark.parametrize("version", [0, 3])
async def test_classic_group_keeps_the_offsets_of_what_its_members_subscribe_to(
    world: Coordinator, version: int
) -> None:
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), version)
    member_id, generation = await join(world, "consumer", subscription)
    await world.commit(TWO, member_id=member_id, generation_id_or_member_epoch=generation)
    for _ in range(2):
        assert await delete(world, [("t", [0]), ("u", [1])]) == (0, {("t", 0): SUBSCRIBED, ("u", 1): 0})
        assert await world.fetch() == {("t", 0): 5}
        await world.fail_over()


async def test_every_topic_counts_as_read_where_a_subscription_cannot_be_parsed(
    world: Coordinator,
) -> None:
    member_id, generation = await join(world, "consumer", b"\0")
    await world.commit(TWO, member_id=member_id, generation_id_or_member_epoch=generation)
    refused = {("t", 0): SUBSCRIBED, ("u", 1): SUBSCRIBED}
    assert await delete(world, [("t", [0]), ("u", [1])]) == (0, refused)
    assert await world.fetch() == TWO


async def test_live_group_of_another_protocol_type_is_refused_whole(world: Coordinator) -> None:
    member_id, generation = await join(world, "connect", b"anything")
    await world.commit(TWO, member_id=member_id, generation_id_or_member_epoch=generation)
    assert await delete(world, [("t", [0]), ("none", [0])]) == (ErrorCode.NON_EMPTY_GROUP, {})
    given = await world.join(version=5, protocol_type="connect", protocols={"p": b"anything"})
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await world.wire(LeaveGroupRequest(group_id="g", member_id=member_id), 0)
    waiting_for_it = await delete(world, [("t", [0])])
    assert waiting_for_it == (ErrorCode.NON_EMPTY_GROUP, {}), "the group waits for who was given an id"
    assert await world.fetch() == TWO
