"""Deleting groups with very many offsets, and very many offsets of a group."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import pytest

from pykraft.group_coordinator.offsets import delete as delete_offsets
from pykraft.group_coordinator.offsets import delete_groups, large_deletions
from pykraft.group_coordinator.offsets.delete import handle_offset_delete
from pykraft.group_coordinator.offsets.delete_groups import handle_delete_groups
from pykraft.group_coordinator.offsets.large_deletions import (
    LargeGroupDeletion,
    LargeOffsetDelete,
    count_small,
)
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.shard import write_records
from pykraft.group_coordinator.state import names, prepared_change
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.commits import LEAST_TOMBSTONE_BYTES, TopicRemoval, write_removal
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_records import member_assignment_record, member_metadata_record
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.prepared_change import PreparedChange
from pykraft.group_coordinator.state.result import AnyResult
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.groups import DeleteGroupsRequest
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.asynchronous import in_loop
from tests.broker.answers import as_read
from tests.broker.slices import pauses_of, turns_of
from tests.group_coordinator import tools
from tests.group_coordinator.busy import BusyWorld, busy
from tests.group_coordinator.offset_rows import commit_of, index_of, read_again, records_of
from tests.seeds import seeds
from tests.waits import settle

T = TypeVar("T")


def test_least_size_of_a_tombstone_is_that_of_the_first_in_a_batch() -> None:
    builder = BatchBuilder()
    before = builder.size_bytes
    write_removal(builder, TopicRemoval("g", "t", (0,)))
    assert builder.size_bytes - before == LEAST_TOMBSTONE_BYTES + len("g") + len("t")


def test_group_that_fits_into_no_batch_is_refused_before_its_records_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets = dict.fromkeys(range(1_000), (1, ""))
    state = replay_all(EMPTY_STATE, [commit_of("g", topic, offsets, ZERO_UUID) for topic in "tu"])
    result = handle_delete_groups(state, ["g"], 1 << 20)
    builder = BatchBuilder()
    write_records(builder, result.records)
    assert replay_all(state, result.records) == EMPTY_STATE
    least_bytes = 2_000 * (LEAST_TOMBSTONE_BYTES + 2)
    assert least_bytes < builder.size_bytes
    handle_delete_groups(state, ["g"], least_bytes)
    monkeypatch.setattr(delete_groups, "build_offset_tombstones", None)  # would fail
    with pytest.raises(KafkaError) as raised:
        handle_delete_groups(state, ["g"], least_bytes - 1)
    assert raised.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


SIZES = {"t": 300, "u": 3, "v": 1}


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_deletions, "SLICE_STEPS", 1)
    monkeypatch.setattr(large_deletions, "_ENCODED_AT_ONCE", 1)
    monkeypatch.setattr(delete_offsets, "_MERGED_AT_ONCE", 1)
    monkeypatch.setattr(prepared_change, "_SLICE_TOPICS", 1)
    monkeypatch.setattr(names, "SORTED_AT_ONCE", 1)


def with_commit(rng: Random, state: ShardState) -> ShardState:
    """Some group has committed some offsets."""
    topic = rng.choice(sorted(SIZES))
    count = rng.randrange(1, min(SIZES[topic], 20) + 1)
    offsets = {index: (rng.randrange(100), "") for index in rng.sample(range(SIZES[topic]), count)}
    topic_id = rng.choice((ZERO_UUID, tools.topic_id(topic)))
    return replay_all(state, [commit_of(rng.choice("ggh"), topic, offsets, topic_id)])


def with_member(state: ShardState, names: list[str]) -> ShardState:
    """Group g is a consumer group with a member that reads these topics."""
    member = ConsumerMember("m", epoch=1, topic_names=tuple(names))
    group = ConsumerGroup("g")
    state = state.with_group(group)
    return replay_all(state, [member_metadata_record("g", member), member_assignment_record("g", member)])


def change(rng: Random, state: ShardState) -> ShardState:
    """What others have decided meanwhile."""
    roll = rng.random()
    if roll < 0.4:
        return state
    if roll < 0.5 and state.group_offsets("g"):
        topic = rng.choice(sorted(state.group_offsets("g")))
        partitions = list(state.group_offsets("g")[topic])
        removed = rng.sample(partitions, rng.randrange(len(partitions)) + 1)
        return replay_all(state, [TopicRemoval("g", topic, removed)])
    if roll < 0.6:
        return with_member(state, rng.choice([["u"], ["t", "v"], ["none"]]))
    if roll < 0.7:
        return state.with_group(ClassicGroup("g"))
    return with_commit(rng, state)


def begin(rng: Random) -> ShardState:
    state = EMPTY_STATE
    for _ in range(rng.choice((0, 3, 6))):
        state = with_commit(rng, state)
    return state


Written = tuple[object, ShardState, ShardState]


def written(state: ShardState, result: AnyResult) -> Written:
    """The answer, the next state, and the next state as it is read from the log."""
    assert isinstance(result.response, Message)
    response = result.response.encode(result.response.MAX_VERSION)
    return response, replay_all(state, result.records), read_again(state, records_of(result))


def prepared(rng: Random, deletion: LargeGroupDeletion | LargeOffsetDelete, state: ShardState) -> ShardState:
    """The state at the end of a preparation amid other changes."""
    for _ in range(rng.choice((1, 1, 2))):
        for _ in deletion.prepare(state):
            state = change(rng, state)
    return state


@pytest.mark.usefixtures("short_slices")
@pytest.mark.parametrize("seed", seeds(150, checked=40))
def test_large_group_is_deleted_as_any_other(seed: int) -> None:
    rng = Random(seed)
    deletion = LargeGroupDeletion("g", 1 << 20)
    state = prepared(rng, deletion, begin(rng))
    response, after, from_log = written(state, deletion.decide(state))
    assert (response, after) == written(state, handle_delete_groups(state, ["g"], 1 << 20))[:2]
    assert after == from_log
    assert {key: dict(groups) for key, groups in after.groups_by_topic.items()} == index_of(after)


@pytest.mark.usefixtures("short_slices")
@pytest.mark.parametrize("seed", seeds(200, checked=50))
def test_many_offsets_are_deleted_as_any_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_deletions, "_LOOKED_AT_ONCE", 1 + seed % 9)
    rng = Random(seed)
    topics = TopicsView(tools.make_image(SIZES))
    asked = [(rng.choice(["t", "u", "v", "none"]), rng.randrange(0, 9)) for _ in range(rng.choice((1, 3, 8)))]
    request = delete_request([(name, [rng.randrange(-1, 6) for _ in range(count)]) for name, count in asked])
    deletion = LargeOffsetDelete(request, topics, 1 << 20)
    state = prepared(rng, deletion, begin(rng))
    try:
        expected = written(state, handle_offset_delete(state, request, topics))
    except KafkaError as error:
        with pytest.raises(KafkaError) as raised:
            deletion.decide(state)
        assert raised.value.code is error.code
        return
    result = deletion.decide(state)
    if result.response is deletion.response:
        pauses_of(deletion.build())
    response, after, from_log = written(state, result)
    assert (response, after) == expected[:2]
    assert after == from_log
    assert {key: dict(groups) for key, groups in after.groups_by_topic.items()} == index_of(after)


def delete_request(topics: list[tuple[str, list[int]]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ],
    )


@pytest.mark.usefixtures("short_slices")
def test_large_deletion_that_fits_into_no_batch_is_refused_and_its_group_stays() -> None:
    offsets = dict.fromkeys(range(1_000), (1, ""))
    state = replay_all(EMPTY_STATE, [commit_of("g", topic, offsets, ZERO_UUID) for topic in "tu"])
    whole = LargeGroupDeletion("g", 20_000)
    some = LargeOffsetDelete(
        delete_request([("t", [*range(1_000)])]), TopicsView(tools.make_image({"t": 1_000})), 15_000
    )
    for deletion in (whole, some):
        steps = pauses_of(deletion.prepare(state))
        assert steps < 10, "it is given up as soon as it is too large"
        with pytest.raises(KafkaError) as raised:
            deletion.decide(state)
        assert raised.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def test_nothing_is_encoded_when_a_prepared_deletion_is_decided() -> None:
    """What is decided in one turn then costs the same for one topic and for ten thousand."""
    state = replay_all(EMPTY_STATE, [commit_of("g", f"t{n}", {0: (1, "")}, ZERO_UUID) for n in range(50)])
    deletion = LargeGroupDeletion("g", 1 << 20)
    pauses_of(deletion.prepare(state))
    first, _ = deletion.decide(state).records
    assert isinstance(first, PreparedChange)
    assert first.builder.record_count == 50
    assert pauses_of(deletion.prepare(state)) == 0


def test_tombstones_of_very_many_offsets_are_encoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_deletions, "SLICE_STEPS", 100)
    state = replay_all(EMPTY_STATE, [commit_of("g", f"t{n}", {0: (1, "")}, ZERO_UUID) for n in range(200)])
    assert pauses_of(LargeGroupDeletion("g", 1 << 20).prepare(state)) > 200 * 8 // 110
    request = delete_request([(f"t{n}", [0]) for n in range(200)])
    topics = TopicsView(tools.make_image({f"t{n}": 1 for n in range(200)}))
    assert pauses_of(LargeOffsetDelete(request, topics, 1 << 20).prepare(state)) > 2 * 200 * 8 // 110


def test_very_many_partitions_of_one_topic_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("SLICE_STEPS", "_LOOKED_AT_ONCE", "_ENCODED_AT_ONCE"):
        monkeypatch.setattr(large_deletions, bound, 100)
    state = replay_all(EMPTY_STATE, [commit_of("g", "t", {0: (1, "")}, ZERO_UUID)])
    topics = TopicsView(tools.make_image({"t": 450}))
    for indexes in ([0] * 1_000, [*range(400), *range(450, 1_050)]):
        request = delete_request([("t", indexes)])
        deletion = LargeOffsetDelete(request, topics, 1 << 20)
        assert pauses_of(deletion.prepare(state)) >= 9
        result = deletion.decide(state)
        pauses_of(deletion.build())
        expected = handle_offset_delete(state, request, topics).response
        assert result.response is deletion.response and deletion.response == expected


def test_groups_of_one_request_are_deleted_some_at_a_time_and_large_ones_alone() -> None:
    state = EMPTY_STATE
    for group_id, topics in (("a", 1), ("b", 2), ("large", 200), ("c", 1)):
        for n in range(topics):
            state = replay_all(state, [commit_of(group_id, f"t{n}", {0: (1, "")}, ZERO_UUID)])
    assert count_small(state, ["a", "b", "large", "c"]) == 2
    assert count_small(state, ["large", "c"]) == 0
    assert count_small(state, ["c", "nobody"]) == 2
    assert count_small(state, ["c", "large"]) == 1


@asynccontextmanager
async def of_many_topics() -> AsyncIterator[BusyWorld]:
    """Group g has an offset of each of 150 topics."""
    async with busy(sizes={f"t{n}": 2 for n in range(150)}) as world:
        for n in range(150):
            world.commit(1, 1, f"t{n}")
        yield world


world = in_loop(of_many_topics)


async def deleted(world: BusyWorld, asked: Awaitable[T]) -> tuple[T, list[int]]:
    """The answer, and how many tombstones each batch has; there are commits in every turn until then."""
    before = len(world.writer.batches)
    answer, turns = await turns_of(asked, lambda turn: world.commit(turn, 2, f"t{turn % 7}"))
    assert turns > 100
    batches = [records for _, _, records in world.writer.batches[before:]]
    counts = [len({key for key, value in records if value is None}) for records in batches]
    return answer, [count for count in counts if count]


def codes(answer: Any) -> dict[str, int]:
    return {result.group_id: result.error_code for result in as_read(answer, 2).results}


@pytest.mark.usefixtures("short_slices")
async def test_large_group_is_deleted_over_several_turns_and_at_one_moment(world: BusyWorld) -> None:
    request = DeleteGroupsRequest(groups_names=["nobody", "g"])
    answer, tombstones = await deleted(world, world.service.delete_groups(tools.CALLER, request, 2))
    assert codes(answer) == {"nobody": ErrorCode.GROUP_ID_NOT_FOUND, "g": 0}
    assert tombstones == [150 + 7 + 1], "all, and the group, in one batch"


@pytest.mark.usefixtures("short_slices")
async def test_many_offsets_are_deleted_over_several_turns_and_at_one_moment(world: BusyWorld) -> None:
    request = delete_request([(f"t{n}", [0, 1, 2]) for n in range(150)])
    response, tombstones = await deleted(world, world.service.offset_delete(tools.CALLER, request, 0))
    answer = OffsetDeleteResponse.decode(response.encode(0), 0)
    assert [topic.name for topic in answer.topics] == [f"t{n}" for n in range(150)]
    assert {
        tuple((one.partition_index, one.error_code) for one in topic.partitions) for topic in answer.topics
    } == {((2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, 0), (1, 0))}
    assert tombstones == [150 + 7]


@pytest.mark.usefixtures("short_slices")
async def test_deletions_that_are_refused_by_the_log_have_not_happened(world: BusyWorld) -> None:
    before = world.hosted.shard.state
    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    request = delete_request([(f"t{n}", [0]) for n in range(150)])
    with pytest.raises(KafkaError) as raised:
        await world.service.offset_delete(tools.CALLER, request, 0)
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    named = DeleteGroupsRequest(groups_names=["g"])
    answer = await world.service.delete_groups(tools.CALLER, named, 2)
    assert codes(answer) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.hosted.shard.state is before


@pytest.mark.usefixtures("short_slices")
async def test_group_that_moves_away_amid_its_deletion_is_to_be_looked_for(world: BusyWorld) -> None:
    request = DeleteGroupsRequest(groups_names=["g"])
    deleting = asyncio.ensure_future(world.service.delete_groups(tools.CALLER, request, 2))
    await settle(10)
    world.service.on_resigned(0)
    assert codes(await deleting) == {"g": ErrorCode.NOT_COORDINATOR}
