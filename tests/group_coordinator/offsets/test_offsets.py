"""Committed offsets: read back by every version, refused, removed with their topic or when they expire."""

import asyncio

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import ListGroupsRequest
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykraft.metadata_log.delta import MetadataDelta
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import (
    SHORT_METADATA,
    Coordinator,
    codes,
    running_broker,
    running_world,
)
from tests.group_coordinator.requests import CommitFields, fetch_offsets
from tests.narrowing import present
from tests.waits import settle

world = in_loop(running_broker)
coordinator = in_loop(running_world)


async def test_committed_offsets_are_read_back_by_every_version(world: Coordinator) -> None:
    assert codes(await world.commit({("t", 0): 5, ("u", 1): 6}, metadata="note")) == [0, 0]
    names = [
        OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3]),
        OffsetFetchRequestTopic(name="nope", partition_indexes=[0]),
    ]
    for version in range(1, 8):
        answer = await world.wire(OffsetFetchRequest(group_id="g", topics=names), version)
        seen = [(p.committed_offset, p.metadata, p.error_code) for t in answer.topics for p in t.partitions]
        assert seen == [(5, "note", 0), (-1, "", 0), (-1, "", 0)]
    for version in (8, 9):
        assert await world.fetch(version=version) == {("t", 0): 5, ("u", 1): 6}
    topics = [
        OffsetFetchRequestTopics(topic_id=tools.topic_id("t"), partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=tools.topic_id("nope"), partition_indexes=[0]),
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = (await world.wire(OffsetFetchRequest(groups=[group]), 10)).groups[0]
    committed = [(p.committed_offset, p.error_code) for t in answer.topics for p in t.partitions]
    assert committed == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_unknown_group_has_no_offsets_and_no_error(world: Coordinator) -> None:
    assert await world.fetch("nobody") == {}


async def test_all_partitions_of_a_commit_are_one_batch(world: Coordinator) -> None:
    await world.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
    assert [len(batch) for _, _, batch in world.writer.batches] == [3]


async def test_bad_partitions_are_refused_one_by_one(world: Coordinator) -> None:
    answer = await world.commit({("t", 9): 1, ("nope", 0): 1, ("u", 0): 3})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [unknown, unknown, 0]
    answer = await world.commit({("nope", 0): 1, ("u", 1): 4}, version=10)
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
    answer = await world.commit({("t", 0): 1}, metadata="x" * 11)
    assert codes(answer) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await world.fetch() == {("u", 0): 3, ("u", 1): 4}


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
async def test_failed_append_is_reported_and_reverted(
    world: Coordinator, refusal: ErrorCode, answer: ErrorCode
) -> None:
    await world.commit({("t", 0): 1})
    world.writer.refuse = refusal
    assert codes(await world.commit({("t", 0): 2})) == [answer]
    world.writer.refuse = None
    assert await world.fetch() == {("t", 0): 1}


async def test_commit_by_a_consumer_member_needs_its_epoch(world: Coordinator) -> None:
    await world.beat()
    member: CommitFields = {"member_id": "m", "generation_id_or_member_epoch": 2}
    assert codes(await world.commit({("t", 0): 1}, 9, **member)) == [0]
    stale: CommitFields = member | {"generation_id_or_member_epoch": 1}
    assert codes(await world.commit({("t", 0): 1}, 9, **stale)) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert codes(await world.commit({("t", 0): 1}, 8, **member)) == [ErrorCode.UNSUPPORTED_VERSION]
    stranger: CommitFields = member | {"member_id": "x"}
    assert codes(await world.commit({("t", 0): 1}, 9, **stranger)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert codes(await world.commit({("t", 0): 1}, 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_reading_at_a_stale_member_epoch_is_refused(world: Coordinator) -> None:
    await world.beat()
    assert await world.fetch(version=9, member_id="m", epoch=2) == {}
    for member_id, epoch, code in (
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        answer = await world.wire(fetch_offsets(member_id=member_id, epoch=epoch), 9)
        assert answer.groups[0].error_code == code


async def test_commit_to_a_missing_group_depends_on_the_epoch(world: Coordinator) -> None:
    named: CommitFields = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert codes(await world.commit({("t", 0): 1}, 8, **named)) == [ErrorCode.ILLEGAL_GENERATION]
    assert codes(await world.commit({("t", 0): 1}, 9, **named)) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert codes(await world.commit({("t", 0): 1})) == [0]


async def test_offsets_of_a_deleted_topic_are_removed(world: Coordinator) -> None:
    await world.commit({("t", 0): 1, ("u", 0): 2})
    old, world.image = world.image, tools.make_image({"t": 4}, 2)
    gone = present(old.topic("u"))
    delta = MetadataDelta(old, world.image, deleted_topics={gone.id: gone})
    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.service.on_metadata(delta, world.image)
    world.writer.refuse = None
    world.service.tick()
    assert await world.fetch() == {("t", 0): 1}
    await world.fail_over()
    assert await world.fetch() == {("t", 0): 1}


async def test_offsets_of_a_topic_deleted_without_a_coordinator_are_removed_on_load(
    world: Coordinator,
) -> None:
    await world.commit({("t", 0): 1, ("u", 0): 2})
    world.image = tools.make_image({"t": 4}, 2)
    await world.fail_over()
    assert await world.fetch() == {("t", 0): 1}


def clean_up(world: Coordinator) -> None:
    for _ in range(3):  # offsets, then groups, one slice per tick
        world.service.tick()


async def test_unused_offsets_and_their_group_expire(world: Coordinator) -> None:
    await world.commit({("t", 0): 1})
    world.clock.now_ms += SHORT_METADATA.offsets_retention_ms - 1
    await world.commit({("t", 1): 2})
    world.clock.now_ms += 1
    clean_up(world)
    assert await world.fetch() == {("t", 1): 2}
    world.clock.now_ms += SHORT_METADATA.offsets_retention_ms
    clean_up(world)
    assert (await world.wire(ListGroupsRequest(), 5)).groups == []


async def test_topic_recreated_while_loading_starts_without_offsets(coordinator: Coordinator) -> None:
    assert await coordinator.commit_one(100) == 0
    coordinator.service.on_resigned(0)
    coordinator.writer.read_gate = asyncio.Event()
    await coordinator.lead(2)
    coordinator.clock.now_ms += 10
    coordinator.delete_topic("t", {})
    coordinator.publish(tools.make_image({"t": 4}, coordinator.image.offset + 1, {"t": 2}))
    coordinator.writer.read_gate.set()
    await settle()
    assert await coordinator.fetch() == {}
    assert await coordinator.commit_one(3) == 0
    await coordinator.pass_time(1_000)
    assert await coordinator.fetch() == {("t", 0): 3}


async def test_commit_right_after_a_topic_was_recreated_survives_a_late_clean_up(
    coordinator: Coordinator,
) -> None:
    """The tombstones for the old topic could not be written at first; same millisecond throughout."""
    assert await coordinator.commit_one(100) == 0
    coordinator.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.delete_topic("t", {})
    coordinator.publish(tools.make_image({"t": 4}, coordinator.image.offset + 1, {"t": 2}))
    coordinator.writer.refuse = None
    assert await coordinator.commit_one(3) == 0
    coordinator.service.tick()
    assert await coordinator.fetch() == {("t", 0): 3}
