"""Removing offsets in slices: the work of one turn, and that changes in between lose nothing."""

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator import housekeeping, runtime
from pykraft.group_coordinator.housekeeping import (
    SLICE_STEPS,
    Candidate,
    Sweep,
    sweep_expired_groups,
    sweep_expired_offsets,
)
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.fetch import build_group, find_offsets
from pykraft.group_coordinator.replay import replay, replay_all
from pykraft.group_coordinator.runtime import GroupRuntime, HostedGroups
from pykraft.group_coordinator.state.codec import decode_record, encode_record
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.group_coordinator.state.result import Call, CoordinatorResult, Record
from pykraft.group_coordinator.state.sessions import SetTimer, TimerKey, TimerKind
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.groups import HeartbeatResponse
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.persistent import Map, drain
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.narrowing import present
from tests.unexpected import unexpected

CONFIG = GroupConfig(offsets_topic_num_partitions=1)
BIG = 5 * SLICE_STEPS


class Coordinator:
    """A runtime over a log in memory, ticked by hand; offsets are written into the log as if committed."""

    def __init__(self) -> None:
        self.clock, self.writer = ManualClock(), tools.MemoryWriter()
        self.writer.read_slice = 10_000
        self.image = EMPTY_IMAGE
        self.most_records = SLICE_STEPS
        """That a slice may write: one a step, where each offset is a run by itself."""
        self.runtime = GroupRuntime(CONFIG, self.writer, self.clock, unexpected)
        self.set_topics({"t": 4, "u": 4})

    def set_topics(self, sizes: dict[str, int], incarnations: dict[str, int] | None = None) -> None:
        old = self.image
        self.image = tools.make_image(sizes, old.offset + 1, incarnations)
        deleted = {
            topic_id: topic
            for topic_id, topic in old.topics_by_id.items()
            if topic_id not in self.image.topics_by_id
        }
        self.runtime.on_metadata(MetadataDelta(old, self.image, deleted_topics=deleted), self.image)

    def record(self, group_id: str, topic: str, partition: int = 0, offset: int = 1) -> GroupRecord:
        topic_id = self.image.topic_ids[topic]
        value = OffsetCommitValue(offset, -1, "", self.clock.now_ms, topic_id=topic_id)
        return GroupRecord(OffsetCommitKey(group_id, topic, partition), value)

    def write(self, *records: GroupRecord) -> None:
        """Before the partition is led."""
        self.writer.append(0, 1, map(encode_record, records), self.clock.now_ms)

    def commit(self, group_id: str, topic: str, offset: int) -> None:
        record = self.record(group_id, topic, offset=offset)
        shard = self.hosted.shard
        shard.apply(lambda _: CoordinatorResult(None, (record,)), wall_ms=0, now_ms=self.clock.now_ms)

    def lead(self, epoch: int) -> None:
        async def load() -> None:
            self.runtime.elect(0, epoch)
            await present(self.hosted.load_task)

        asyncio.run(load())

    @property
    def hosted(self) -> HostedGroups:
        return self.runtime._hosted[0]

    @property
    def state(self) -> ShardState:
        state = self.hosted.shard.state
        assert isinstance(state, ShardState)
        return state

    def ticks_until_clean(self) -> int:
        ticks = 0
        while self.hosted.sweeps:
            ticks += 1
            self.tick()
        return ticks

    def tick(self) -> None:
        """One turn, which may do at most one slice; the live state must keep matching the log."""
        end = len(self.writer.logs[0])
        self.runtime.tick()
        assert len(self.writer.logs[0]) - end <= self.most_records
        assert self.state == replayed(self.writer), "the state matches the log"


def replayed(writer: tools.MemoryWriter) -> ShardState:
    records = (decode_record(key, value) for key, value in writer.logs[0])
    return replay_all(EMPTY_STATE, [record for record in records if record is not None])


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics of all offsets that any sweep has read."""
    seen: list[str] = []
    original = housekeeping._delete_if_unchanged

    def counted(state: ShardState, candidate: Candidate, call: Call) -> Iterator[Record]:
        seen.append(candidate.topic)
        return original(state, candidate, call)

    monkeypatch.setattr(housekeeping, "_delete_if_unchanged", counted)
    return seen


def test_offsets_of_a_deleted_topic_are_removed_in_slices_and_once_each(
    coordinator: Coordinator, looked_at: list[str]
) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n}", "t") for n in range(BIG)), *(c.record(f"g{n}", "u") for n in range(BIG)))
    c.lead(1)
    c.ticks_until_clean()
    looked_at.clear()
    c.set_topics({"u": 4})
    assert c.ticks_until_clean() == BIG // SLICE_STEPS + 1
    assert looked_at == ["t"] * BIG, "offsets of other topics are not read"
    assert {name for offsets in c.state.offsets.values() for name in offsets} == {"u"}
    assert len(c.state.offsets) == BIG


def test_a_topic_with_few_offsets_costs_little_among_many_others(
    coordinator: Coordinator, looked_at: list[str]
) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n}", "t") for n in range(BIG)), c.record("h", "u"))
    c.lead(1)
    c.ticks_until_clean()
    looked_at.clear()
    c.set_topics({"t": 4})
    assert c.ticks_until_clean() == 1
    assert looked_at == ["u"]


def test_commits_between_the_slices_are_kept(coordinator: Coordinator) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n:04}", "t", offset=1) for n in range(BIG)))
    c.lead(1)
    c.set_topics({"u": 4})
    c.tick()
    c.set_topics({"t": 4, "u": 4}, {"t": 2})
    again = {f"g{n:04}" for n in range(0, BIG, 3)}
    for group_id in sorted(again):
        c.commit(group_id, "t", offset=7)
        c.commit(group_id, "u", offset=8)
    c.ticks_until_clean()
    assert set(c.state.offsets) == again
    for group_id in again:
        kept = c.state.committed(group_id, "t", 0)
        assert kept is not None
        assert (kept.offset, kept.topic_id) == (7, c.image.topic_ids["t"])


def test_coordinator_that_takes_over_during_a_sweep_ends_it_even_if_the_topic_exists_again(
    coordinator: Coordinator,
) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n:04}", "t", offset=1) for n in range(BIG)))
    c.lead(1)
    c.set_topics({"u": 4})
    c.tick()
    c.set_topics({"t": 4, "u": 4}, {"t": 2})
    c.commit("new", "t", offset=7)
    c.runtime.resign(0)
    c.lead(2)
    assert len(c.state.offsets) > 1, "the sweep had not ended"
    c.ticks_until_clean()
    assert set(c.state.offsets) == {"new"}


def test_slice_that_cannot_be_written_is_retried_and_nothing_is_removed_before_it_is_written(
    coordinator: Coordinator,
) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n:04}", "t") for n in range(BIG)))
    c.lead(1)
    c.ticks_until_clean()
    c.set_topics({"u": 4})
    c.tick()
    left = len(c.state.offsets)
    assert 0 < left < BIG
    c.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(10):
        c.tick()
        assert len(c.state.offsets) == left
    c.writer.refuse = None
    c.clock.now_ms += 500
    c.ticks_until_clean()
    assert not c.state.offsets


def test_slice_that_is_too_large_for_a_batch_is_written_in_parts(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = coordinator
    long_id = "g" * 32_000  # 100 of its keys exceed what the offsets topic accepts in one batch
    c.write(*(c.record(long_id, "t", n) for n in range(BIG)), c.record("vast", "t"), c.record("small", "t"))
    c.lead(1)
    c.ticks_until_clean()
    append = c.writer.append

    def append_within_limit(
        partition: int, epoch: int, records: Iterable[tuple[bytes, bytes | None]], now_ms: int
    ) -> int:
        records = list(records)
        if sum(len(key) for key, _ in records) > 1_000_000 or any(b"vast" in key for key, _ in records):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(partition, epoch, records, now_ms)

    monkeypatch.setattr(c.writer, "append", append_within_limit)
    c.set_topics({"u": 4})
    for _ in range(BIG):
        c.tick()
        c.clock.now_ms += 500
    assert not c.hosted.sweeps
    assert set(c.state.offsets) == {"vast"}, "a key that no batch can hold stays and does not block others"


def test_next_slice_waits_until_the_last_is_committed(coordinator: Coordinator) -> None:
    """Slow replicas are not flooded and never have much to catch up with."""
    c = coordinator
    c.write(*(c.record(f"g{n:04}", "t") for n in range(BIG)))
    c.lead(1)
    c.ticks_until_clean()
    c.writer.hold = True
    c.set_topics({"u": 4})
    for _ in range(10):
        c.tick()
    assert BIG - len(c.state.offsets) <= SLICE_STEPS
    c.writer.hold = False
    c.writer.watermarks[0] = len(c.writer.logs[0])
    c.runtime.on_high_watermark(0, c.writer.watermarks[0])
    c.ticks_until_clean()
    assert not c.state.offsets


def test_sweep_frees_what_it_has_passed() -> None:
    """Otherwise a walk over a million offsets would end by freeing them all at once."""

    class Value:
        pass

    values = {n: Value() for n in range(1_000)}
    gone = [weakref.ref(value) for value in values.values()]
    walk = drain(Map(values))
    values.clear()
    for _ in range(500):
        next(walk)
    assert sum(ref() is not None for ref in gone) < 600


def test_retention_check_works_in_slices_and_keeps_what_was_committed_meanwhile(
    coordinator: Coordinator,
) -> None:
    c = coordinator
    c.write(*(c.record(f"g{n:04}", "t") for n in range(BIG)))
    c.lead(1)
    c.ticks_until_clean()
    c.clock.now_ms += CONFIG.offsets_retention_ms
    c.tick()
    assert c.hosted.sweeps, "more is left to do in later turns"
    c.commit("g0000", "t", offset=9)
    c.commit(f"g{BIG - 1:04}", "t", offset=9)
    c.ticks_until_clean()
    assert set(c.state.offsets) == c.state.group_ids() == {"g0000", f"g{BIG - 1:04}"}


def test_offset_without_a_topic_id_is_removed_with_the_deleted_topic(
    coordinator: Coordinator,
) -> None:
    """Written by a version that recorded none, or with a retention time of its own."""
    c = coordinator
    value = OffsetCommitValue(1, -1, "", 0, expire_timestamp_ms=2**40)
    c.write(GroupRecord(OffsetCommitKey("g", "t", 0), value), c.record("g", "u"))
    c.lead(1)
    c.ticks_until_clean()
    assert value.topic_id == ZERO_UUID
    assert c.state.committed("g", "t", 0) is not None
    c.set_topics({"u": 4})
    c.ticks_until_clean()
    assert c.state.committed("g", "t", 0) is None
    assert c.state.committed("g", "u", 0) is not None


def test_sessions_of_many_members_start_in_slices_and_none_expires_before_all_have_one(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_SESSIONS_PER_TICK", 10)
    monkeypatch.setattr(runtime, "_EXPIRED_PER_TICK", 5)
    c = coordinator
    member = ConsumerGroupMemberMetadataValue(None, None, "c", "/h", ("t",), None, 60_000, None)
    c.write(*(GroupRecord(ConsumerGroupMemberMetadataKey("g", f"m{n}"), member) for n in range(100)))
    c.lead(1)
    deadlines = c.hosted.shard.deadlines
    started = []
    while c.hosted.shard.starts_sessions:
        assert len(present(c.state.consumer_group("g")).members) == 100
        c.clock.now_ms += CONFIG.consumer_session_timeout_ms  # a very slow turn
        c.tick()
        started.append(len(deadlines))
    assert started[:2] == [9, 19], "first a group and its first members, then more members"
    assert len(started) == 11
    c.clock.now_ms += CONFIG.consumer_session_timeout_ms
    members = []
    while not present(c.state.consumer_group("g")).is_empty:
        members.append(len(present(c.state.consumer_group("g")).members))
        c.tick()
    assert members[:3] == [95, 90, 85], "expiries that are due together are also done in slices"


def test_partitions_share_what_a_tick_may_start_and_expire(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes over many partitions at once is not held up by each."""
    monkeypatch.setattr(runtime, "_SESSIONS_PER_TICK", 10)
    monkeypatch.setattr(runtime, "_EXPIRED_PER_TICK", 5)
    c, partitions = coordinator, range(4)
    member = ConsumerGroupMemberMetadataValue(None, None, "c", "/h", ("t",), None, 60_000, None)
    for partition in partitions:
        records = (GroupRecord(ConsumerGroupMemberMetadataKey("g", f"m{n}"), member) for n in range(20))
        c.writer.append(partition, 1, map(encode_record, records), c.clock.now_ms)

    async def load() -> None:
        for partition in partitions:
            c.runtime.elect(partition, 1)
            await present(c.runtime._hosted[partition].load_task)

    asyncio.run(load())
    shards = [c.runtime._hosted[partition].shard for partition in partitions]

    def sessions() -> int:
        return sum(len(shard.deadlines) for shard in shards)

    def members() -> int:
        return sum(len(present(shard.state.consumer_group("g")).members) for shard in shards)

    counts = [sessions()]
    while any(shard.starts_sessions for shard in shards):
        c.runtime.tick()
        counts.append(sessions())
    assert counts[-1] == 80
    assert all(0 < new - old <= 10 for old, new in pairwise(counts))
    c.clock.now_ms += CONFIG.consumer_session_timeout_ms
    counts = [members()]
    while members():
        c.runtime.tick()
        counts.append(members())
    assert counts == list(range(80, -1, -5))


def test_states_before_the_high_watermark_are_let_go_when_it_is_known(coordinator: Coordinator) -> None:
    """Whoever only commits never asks for the committed state, and must not keep all that there were."""
    c = coordinator
    c.lead(1)
    c.writer.hold = True
    for offset in range(20):
        c.commit("g", "t", offset)
    shard = c.hosted.shard
    assert len(shard._timeline._pending) == 20
    c.writer.watermarks[0] = 15
    c.runtime.on_high_watermark(0, 15)
    assert len(shard._timeline._pending) == 5
    c.writer.watermarks[0] = 20
    c.runtime.on_high_watermark(0, 20)
    assert not shard._timeline.has_pending and shard.committed_offset == 20


def test_index_by_topic_matches_the_offsets() -> None:
    rng = Random(6)
    ids = [ZERO_UUID, tools.topic_id("t"), tools.topic_id("t", 2)]
    state = EMPTY_STATE
    for step in range(2_000):
        key = OffsetCommitKey(f"g{rng.randrange(4)}", rng.choice("tu"), rng.randrange(3))
        value = None if rng.random() < 0.4 else OffsetCommitValue(step, -1, "", 0, topic_id=rng.choice(ids))
        state = replay(state, GroupRecord(key, value))
        expected: dict[tuple[str, Uuid], dict[str, int]] = {}
        for group_id, topics in state.offsets.items():
            for name, partitions in topics.items():
                for committed in partitions.values():
                    counts = expected.setdefault((name, committed.topic_id), {})
                    counts[group_id] = counts.get(group_id, 0) + 1
        assert {topic: dict(counts) for topic, counts in state.groups_by_topic.items()} == expected


def test_offsets_of_a_deleted_topic_are_not_returned_for_its_namesake(coordinator: Coordinator) -> None:
    c = coordinator
    c.write(c.record("g", "t", 0, 17), c.record("g", "u", 0, 18))
    c.lead(1)
    c.set_topics({"t": 4, "u": 4}, {"t": 2})
    assert c.state.committed("g", "t", 0) is not None, "it is still to be removed"
    asked = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("t", "u")]
    for topics, expected in ((asked, {"t": -1, "u": 18}), (None, {"u": 18})):
        request = OffsetFetchRequestGroup(group_id="g", topics=topics)
        answer = build_group(request, find_offsets(c.state, request), c.runtime.topics, 9)
        assert {t.name: t.partitions[0].committed_offset for t in answer.topics} == expected


def swept(lab: tools.ShardLab) -> None:
    write_slices(lab, sweep_expired_offsets(lab.shard.state))
    write_slices(lab, sweep_expired_groups(lab.shard.state))


def write_slices(lab: tools.ShardLab, sweep: Sweep) -> None:
    while not sweep.is_finished:
        lab.apply(lambda state: sweep.build_slice(state, lab.call()))
        sweep.slice_is_written()


def commit_alone(lab: tools.ShardLab, retention_time_ms: int = -1) -> None:
    """Commit for partition 0 of ``t`` as a client without membership."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", topics=[topic], retention_time_ms=retention_time_ms)
    view = tools.commit_view(request, 4)
    lab.apply(lambda state: handle_offset_commit(state, view, lab.call(4)))


def test_offset_is_kept_for_the_time_that_its_commit_asked_for() -> None:
    lab = tools.ShardLab({"t": 1})
    commit_alone(lab, retention_time_ms=1_000)
    lab.pass_time(999)
    swept(lab)
    assert lab.shard.state.committed("g", "t", 0) is not None
    lab.pass_time(1)
    swept(lab)
    assert not lab.shard.state.groups


def test_members_that_join_during_a_sweep_keep_their_offsets() -> None:
    lab = tools.ShardLab({"t": 1})
    commit_alone(lab)
    lab.pass_time(lab.config.offsets_retention_ms)
    sweep = sweep_expired_offsets(lab.shard.state)
    lab.heartbeat("a", 0)
    write_slices(lab, sweep)
    assert lab.shard.state.committed("g", "t", 0) is not None


def test_load_continues_after_a_batch_without_records(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = coordinator
    c.write(c.record("g", "t", 0, 17), c.record("g", "u", 0, 18))
    read_records = c.writer.read

    async def read(partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        return ([], 1) if start_offset == 0 else await read_records(partition, start_offset)

    monkeypatch.setattr(c.writer, "read", read)
    c.lead(1)
    committed = c.state.committed("g", "u", 0)
    assert committed is not None and committed.offset == 18


async def test_timer_that_is_due_before_all_others_wakes_the_coordinator(coordinator: Coordinator) -> None:
    c = coordinator
    timer = SetTimer(TimerKey(TimerKind.SESSION, "g", "a"), 1_000)
    c.runtime.elect(0, 1)
    await present(c.hosted.load_task)
    c.runtime.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert c.runtime._sleeping_until_ms > c.clock.now_ms + 1_000
    await c.runtime.write(0, lambda _: CoordinatorResult(HeartbeatResponse(), timers=(timer,)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert c.runtime._sleeping_until_ms == c.clock.now_ms + 1_000
    await c.runtime.stop()


def test_offset_goes_with_its_topic_although_a_commit_in_its_place_is_taken_back(
    coordinator: Coordinator,
) -> None:
    coordinator.write(coordinator.record("g", "t"))
    coordinator.lead(1)
    coordinator.ticks_until_clean()

    async def commit_amid_the_deletion() -> None:
        newer = coordinator.record("g", "t", offset=2)
        committing: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        coordinator.runtime.submit(0, lambda _: CoordinatorResult([0], (newer,)), committing)
        coordinator.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        coordinator.set_topics({"u": 4})
        await asyncio.sleep(0)
        assert isinstance(committing.exception(), KafkaError)

    asyncio.run(commit_amid_the_deletion())
    coordinator.writer.refuse = None
    assert present(coordinator.state.committed("g", "t", 0)).offset == 1
    coordinator.ticks_until_clean()
    assert coordinator.state.committed("g", "t", 0) is None


def test_offset_of_a_run_that_is_committed_again_amid_a_sweep_is_kept(coordinator: Coordinator) -> None:
    """The others of its run are removed; offsets of partitions far apart are of several runs."""
    c = coordinator
    c.most_records = 20 * SLICE_STEPS
    c.set_topics({"t": 100_000, "u": 4})
    partitions = [*range(40), *range(300, 340), 9_999]
    c.write(*(c.record(group, "t", n) for group in ("a", "b", "c") for n in partitions))
    c.lead(1)
    c.ticks_until_clean()
    c.set_topics({"u": 4})
    c.set_topics({"t": 100_000, "u": 4}, {"t": 2})
    for group in ("a", "c"):
        record = c.record(group, "t", 7, offset=5)
        c.hosted.shard.apply(lambda _: CoordinatorResult(None, (record,)), wall_ms=0, now_ms=0)  # noqa: B023
    c.ticks_until_clean()
    left = {
        (group, n) for group, topics in c.state.offsets.items() for table in topics.values() for n in table
    }
    assert left == {("a", 7), ("c", 7)}


@pytest.mark.parametrize("text", ["", "text"])
def test_offsets_of_a_run_expire_one_by_one(coordinator: Coordinator, text: str) -> None:
    c = coordinator
    old, newer = c.record("g", "t", 0), c.record("g", "t", 1)
    assert isinstance(newer.value, OffsetCommitValue)
    later_ms = newer.value.commit_timestamp_ms + 5_000
    newer = replace(newer, value=replace(newer.value, commit_timestamp_ms=later_ms, metadata=text))
    c.write(old, newer)
    c.lead(1)
    c.ticks_until_clean()
    for expired_ms, left in ((0, {1}), (4_999, {1}), (5_000, set())):
        c.clock.now_ms = later_ms - 5_000 + CONFIG.offsets_retention_ms + expired_ms
        sweep = sweep_expired_offsets(c.state)
        call = Call(CONFIG, c.runtime.topics, 0, c.clock.now_ms)
        c.hosted.shard.apply(lambda state: sweep.build_slice(state, call), wall_ms=0, now_ms=0)  # noqa: B023
        assert set(c.state.group_offsets("g").get("t", ())) == left


def test_offsets_of_a_recreated_topic_stay_beside_those_of_the_deleted_one(coordinator: Coordinator) -> None:
    """Offsets of two topics of one name are of one run."""
    c = coordinator
    old = [c.record("g", "t", n) for n in range(6)]
    c.set_topics({"t": 4, "u": 4}, {"t": 2})
    c.write(*old, *(c.record("g", "t", n) for n in range(0, 6, 2)))
    c.lead(1)
    c.ticks_until_clean()
    assert list(c.state.group_offsets("g")["t"]) == [0, 2, 4]


def test_offset_without_a_topic_id_goes_with_a_topic_that_is_deleted_amid_the_load(
    coordinator: Coordinator,
) -> None:
    """Only its name tells of which topic it is, and there is another one of that name when the load ends."""
    nameless = OffsetCommitValue(1, -1, "", coordinator.clock.now_ms, topic_id=ZERO_UUID)
    kept = GroupRecord(OffsetCommitKey("g", "u", 0), nameless)
    coordinator.write(GroupRecord(OffsetCommitKey("g", "t", 0), nameless), kept)

    async def load() -> None:
        gate = coordinator.writer.read_gate = asyncio.Event()
        coordinator.runtime.elect(0, 1)
        for _ in range(3):
            await asyncio.sleep(0)
        coordinator.set_topics({"u": 4})
        coordinator.set_topics({"t": 4, "u": 4}, {"t": 2})
        gate.set()
        await present(coordinator.hosted.load_task)

    asyncio.run(load())
    coordinator.ticks_until_clean()
    assert coordinator.state.committed("g", "t", 0) is None
    assert coordinator.state.committed("g", "u", 0) is not None
