"""Large commits beside the same ones decided in one go: the same codes, the same records, the same state."""

from random import Random

import pytest

from pykraft.group_coordinator.offsets import large_commits
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.large_commits import LargeCommit
from pykraft.group_coordinator.replay import replay, replay_all
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state import prepared_change
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.state.result import AnyResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.metadata_log.persistent import Map
from tests.broker.slices import pauses_of
from tests.group_coordinator import tools
from tests.group_coordinator.offset_rows import index_of, read_again, records_of
from tests.seeds import seeds

SIZES = {"t": 40, "u": 3, "v": 1}
MAX_BYTES = 1_000
Decided = tuple[object, list[tuple[bytes, bytes | None]], tuple[object, ...], ShardState]


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_commits, "SLICE_STEPS", 1)
    monkeypatch.setattr(large_commits, "_COLUMN_PIECE", 5)
    monkeypatch.setattr(large_commits, "_PIECE", 3)
    monkeypatch.setattr(prepared_change, "_SLICE_TOPICS", 1)


def random_request(rng: Random, member_epoch: int = -1) -> OffsetCommitRequest:
    def partition(size: int, texts: tuple[str | None, ...]) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=rng.randrange(-1, size + 1) if rng.random() < 0.2 else rng.randrange(size),
            committed_offset=rng.randrange(10**6),
            committed_leader_epoch=rng.choice((-1, 3)),
            committed_metadata=rng.choice(texts),
        )

    def topic() -> OffsetCommitRequestTopic:
        name = rng.choice(("t", "t", "u", "v", "none"))
        texts: tuple[str | None, ...] = rng.choice(((None,), (None, "", "text"), ("x" * 5_000, "text")))
        count = rng.choice((0, 1, 2, 7, 30))
        partitions = [partition(SIZES.get(name, 1), texts) for _ in range(count)]
        if rng.random() < 0.5:
            partitions.sort(key=lambda one: one.partition_index)
        return OffsetCommitRequestTopic(name=name, topic_id=tools.topic_id(name), partitions=partitions)

    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=member_epoch,
        member_id=rng.choice(("", "m")),
        retention_time_ms=rng.choice((-1, 60_000)),
        topics=[topic() for _ in range(rng.choice((0, 1, 4)))],
    )


def change(rng: Random, lab: tools.ShardLab, state: ShardState) -> ShardState:
    """What others have decided meanwhile."""
    roll = rng.random()
    if roll < 0.5:
        return state
    if roll < 0.7 and state.group_offsets("g"):
        topic = rng.choice(sorted(state.group_offsets("g")))
        keys = [("g", topic, index) for index in state.group_offsets("g")[topic]]
        return replay_all(state, tools.tombstones(rng.sample(keys, rng.randrange(len(keys)) + 1)).records)
    request = random_request(rng)
    request.group_id, request.generation_id_or_member_epoch, request.member_id = rng.choice("gh"), -1, ""
    result = handle_offset_commit(ShardState(), tools.commit_view(request, 9), lab.call(9))
    return replay_all(state, result.records)


def decided(state: ShardState, result: AnyResult) -> Decided:
    return result.response, records_of(result), result.timers, replay_all(state, result.records)


def decided_in_slices(state: ShardState, commit: LargeCommit, lab: tools.ShardLab) -> Decided | ErrorCode:
    try:
        return decided(state, commit.decide(state, lab.topics))
    except KafkaError as error:
        return error.code


def expected(state: ShardState, request: OffsetCommitRequest, version: int, lab: tools.ShardLab) -> object:
    view = tools.commit_view(request, version)
    try:
        return decided(state, handle_offset_commit(state, view, lab.call(version)))
    except KafkaError as error:
        return error.code


def initial(rng: Random) -> ShardState:
    """A state in which everybody may commit, or only the member of a generation."""
    roll = rng.random()
    if roll < 0.3:
        lab = tools.ShardLab(SIZES)
        lab.heartbeat("m", 0)
        return lab.shard.state
    if roll < 0.6:
        member = ClassicMember("m", None, "cli", "/127.0.0.1", 60_000, 30_000, (("range", b""),))
        members = Map({"m": member})
        group = ClassicGroup("g", state=ClassicState.STABLE, generation=1, members=members)
        return ShardState().with_group(group)
    return ShardState()


@pytest.mark.parametrize("seed", seeds(150, checked=40))
def test_large_commit_is_decided_as_any_other(seed: int) -> None:
    rng = Random(seed)
    lab = tools.ShardLab(SIZES)
    state = initial(rng)
    for _ in range(6):
        request = random_request(rng, rng.choice((-1, -1, 1, 2)))
        version = rng.choice((2, 6, 8, 9, 10))
        commit = LargeCommit(tools.commit_view(request, version), lab.call(version), 10**6)
        for _ in commit.prepare():
            state = change(rng, lab, state)
        for _ in range(rng.choice((0, 1, 3))):
            for _ in commit.merge(state):
                state = change(rng, lab, state)
        if rng.random() < 0.5:
            assert pauses_of(commit.merge(state)) < 100
            state = change(rng, lab, state)
        found, whole = decided_in_slices(state, commit, lab), expected(state, request, version, lab)
        if isinstance(found, ErrorCode):
            assert found == whole
            continue
        codes, records, timers, state_after = found
        assert isinstance(whole, tuple)
        assert tools.commit_response(tools.commit_view(request, version), codes, version) == (  # type: ignore[arg-type]
            tools.commit_response(tools.commit_view(request, version), whole[0], version)
        )
        assert (dict(records), timers, state_after) == (dict(whole[1]), *whole[2:])
        assert read_again(state, records) == state_after
        assert {k: dict(v) for k, v in state_after.groups_by_topic.items()} == index_of(state_after)
        state = state_after


def prepared(lab: tools.ShardLab, offsets: dict[str, range], max_bytes: int = 10**6) -> LargeCommit:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(partition_index=n, committed_offset=7) for n in indexes],
        )
        for name, indexes in offsets.items()
    ]
    view = tools.commit_view(OffsetCommitRequest(group_id="g", topics=topics), 9)
    commit = LargeCommit(view, lab.call(9), max_bytes)
    pauses_of(commit.prepare())
    pauses_of(commit.merge(lab.shard.state))
    return commit


def test_commit_that_fits_into_no_batch_is_refused_and_changes_nothing() -> None:
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40), "u": range(3)}, max_bytes=MAX_BYTES)
    with pytest.raises(KafkaError) as raised:
        lab.apply(lambda state: commit.decide(state, lab.topics))
    assert raised.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert not lab.writer.logs and not lab.shard.state.offsets


def test_prepared_batch_that_was_refused_by_the_log_has_not_happened() -> None:
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40)})
    lab.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        lab.apply(lambda state: commit.decide(state, lab.topics))
    assert not lab.shard.state.offsets
    lab.writer.refuse = None
    lab.apply(lambda state: commit.decide(state, lab.topics))
    assert len(lab.shard.state.group_offsets("g")["t"]) == 40


def stage(shard: GroupShard, lab: tools.ShardLab, commit: LargeCommit) -> object:
    return shard.stage(
        lambda state: commit.decide(state, lab.topics), wall_ms=lab.clock.now_ms, now_ms=lab.clock.now_ms
    )


def test_prepared_batch_waits_until_what_is_staged_is_written() -> None:
    lab = tools.ShardLab(SIZES)
    first, second = prepared(lab, {"t": range(40)}), prepared(lab, {"t": range(20), "u": range(2)})
    assert stage(lab.shard, lab, first) is not None
    assert stage(lab.shard, lab, second) is None
    lab.shard.flush()
    assert stage(lab.shard, lab, second) is not None
    lab.shard.flush()
    assert [len(records) for _, _, records in lab.writer.batches] == [40, 22]
    assert lab.load().state == lab.shard.state


@pytest.mark.parametrize("recreated", [False, True])
def test_commit_for_a_topic_that_is_deleted_meanwhile_is_to_be_repeated(recreated: bool) -> None:
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40), "u": range(3)})
    sizes = SIZES if recreated else {"t": 40, "v": 1}
    lab.topics = type(lab.topics)(tools.make_image(sizes, 2, {"u": 2}), lab.topics)
    with pytest.raises(KafkaError) as raised:
        lab.apply(lambda state: commit.decide(state, lab.topics))
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not lab.writer.logs and not lab.shard.state.offsets


def test_new_topics_do_not_disturb_a_commit() -> None:
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40)})
    lab.set_topics(SIZES | {"new": 3})
    lab.apply(lambda state: commit.decide(state, lab.topics))
    assert len(lab.shard.state.group_offsets("g")["t"]) == 40


def test_member_that_is_fenced_meanwhile_may_not_commit() -> None:
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40)})
    lab.heartbeat("m", 0)
    with pytest.raises(KafkaError) as raised:
        lab.apply(lambda state: commit.decide(state, lab.topics))
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert not lab.shard.state.offsets


def test_nothing_is_merged_again_while_nothing_has_changed() -> None:
    """What is decided in one turn then costs the same for one topic and for ten thousand."""
    lab = tools.ShardLab(SIZES)
    commit = prepared(lab, {"t": range(40), "u": range(3), "v": range(1)})
    assert pauses_of(commit.merge(lab.shard.state)) == 0
    other = GroupRecord(OffsetCommitKey("h", "w", 0), OffsetCommitValue(1, -1, "", 0, None, ZERO_UUID))
    changed = replay(lab.shard.state, other)
    assert pauses_of(commit.merge(changed)) > 0
    assert pauses_of(commit.merge(changed)) == 0
