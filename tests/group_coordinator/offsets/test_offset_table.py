"""The packed table of committed offsets against a dictionary; the records of commits against the codec."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator import loading
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.replay import replay, replay_all
from pykraft.group_coordinator.state.codec import decode_record, encode_record
from pykraft.group_coordinator.state.commits import TopicCommit, TopicRemoval, write_commit, write_removal
from pykraft.group_coordinator.state.offset_table import (
    NO_PARTITIONS,
    Extra,
    Rows,
    TopicCounts,
    TopicOffsets,
    make_extra,
    pack_row,
)
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.records import HEADER_BYTES
from tests.group_coordinator import tools
from tests.group_coordinator.offset_rows import index_of
from tests.stand_ins import interpreted_only

IDS = [tools.topic_id("t"), tools.topic_id("t", 2), ZERO_UUID]
Model = dict[int, OffsetCommitValue]


def random_rows(rng: Random, partitions: list[int]) -> tuple[Rows, Model]:
    """What a commit sets, as a table takes it and by partition; often without metadata."""
    topic_id = rng.choice(IDS)
    model: Model = {}
    extras: dict[int, Extra] = {}
    chance = rng.choice((0.0, 0.0, 0.2, 1.0))
    now_ms = rng.randrange(2**40)
    for partition in partitions:
        metadata = rng.choice(("a", "note")) if rng.random() < chance else ""
        expires_ms = rng.randrange(99) if rng.random() < chance / 2 else None
        value = OffsetCommitValue(
            rng.randrange(2**50), rng.randrange(-1, 9), metadata, now_ms, expires_ms, topic_id
        )
        model[partition] = value
        extra = make_extra(metadata, expires_ms, topic_id)
        if extra is not None:
            extras[partition] = extra
    rows = b"".join(
        pack_row(value.offset, value.leader_epoch, value.commit_timestamp_ms) for value in model.values()
    )
    return Rows(tuple(partitions), rows, topic_id, extras or None), model


def random_partitions(rng: Random) -> list[int]:
    kind = rng.randrange(4)
    if kind == 0:
        return [rng.randrange(700)]
    if kind == 1:
        start = rng.randrange(600)
        return list(range(start, start + rng.randrange(1, 400)))
    if kind == 2:
        return sorted(rng.sample(range(600), rng.randrange(1, 300)))
    return sorted(rng.sample(range(8), rng.randrange(1, 5)))


def count_topics(model: Model) -> TopicCounts:
    counts: TopicCounts = {}
    for value in model.values():
        counts[value.topic_id] = counts.get(value.topic_id, 0) + 1
    return counts


def built(model: Model, rng: Random) -> TopicOffsets:
    """The same offsets, set one by one in any order."""
    table = NO_PARTITIONS
    for partition in rng.sample(sorted(model), len(model)):
        value = model[partition]
        extra = make_extra(value.metadata, value.expire_timestamp_ms, value.topic_id)
        row = pack_row(value.offset, value.leader_epoch, value.commit_timestamp_ms)
        table = table.with_rows(
            Rows((partition,), row, value.topic_id, None if extra is None else {partition: extra}), {}
        )
    return table


@pytest.mark.parametrize("seed", range(12))
def test_table_is_a_dictionary_whose_versions_stay(seed: int) -> None:
    rng = Random(seed)
    table, model = NO_PARTITIONS, Model()
    versions: list[tuple[TopicOffsets, Model]] = []
    for _ in range(30):
        before = count_topics(model)
        changed: TopicCounts = {}
        versions.append((table, dict(model)))
        if rng.random() < 0.3:
            gone = random_partitions(rng)
            table = table.without(gone, changed)
            model = {partition: value for partition, value in model.items() if partition not in gone}
        else:
            rows, values = random_rows(rng, random_partitions(rng))
            table = table.with_rows(rows, changed)
            model |= values
        after = count_topics(model)
        assert {topic: after.get(topic, 0) - before.get(topic, 0) for topic in IDS} == {
            topic: changed.get(topic, 0) for topic in IDS
        }
        counted: TopicCounts = {}
        table.count_topics(counted)
        assert counted == after
    for old, expected in [*versions, (table, model)]:
        assert dict(old.items()) == expected
        assert (list(old), len(old), bool(old)) == (sorted(expected), len(expected), bool(expected))
        for partition in (*range(0, 700, 37), -1, 10**9):
            assert old.get(partition) == expected.get(partition)
            assert (partition in old) == (partition in expected)
    assert table == built(model, rng)
    if model:
        partition = rng.choice(sorted(model))
        other = model | {partition: OffsetCommitValue(1, 2, "other", 3)}
        assert table != built(other, rng)


@pytest.mark.parametrize("changed", range(3))
@pytest.mark.parametrize(
    "extra", [Extra("other", None, IDS[0]), Extra("note", 7, IDS[0]), Extra("note", None, IDS[1])]
)
def test_tables_differ_by_what_one_offset_has_beside_its_row(changed: int, extra: Extra) -> None:
    def table_of(extras: dict[int, Extra]) -> TopicOffsets:
        return NO_PARTITIONS.with_rows(Rows((0, 1, 2), pack_row(1, 2, 3) * 3, IDS[0], extras), {})

    notes = {partition: Extra("note", None, IDS[0]) for partition in range(3)}
    assert table_of(notes) == table_of(dict(notes))
    assert table_of(notes) != table_of(notes | {changed: extra})
    plain = {partition: note for partition, note in notes.items() if partition != changed}
    assert table_of(notes) != table_of(plain)


def test_offsets_of_one_topic_differ_from_the_same_of_its_namesake() -> None:
    row = pack_row(1, 2, 3)
    first, second = (NO_PARTITIONS.with_rows(Rows((0,), row, topic_id), {}) for topic_id in IDS[:2])
    assert first != second


def test_a_table_takes_about_twenty_bytes_for_a_partition() -> None:
    """Without objects for single partitions: rows, and one bit each."""
    rows, _ = random_rows(Random(3), list(range(1024)))
    table = NO_PARTITIONS.with_rows(rows._replace(extras=None), {})
    chunks = [run.chunk for run in table.runs()]
    assert len(chunks) == 4
    assert sum(len(chunk.rows) for chunk in chunks) == 20 * 1024


@pytest.mark.parametrize("seed", range(30))
def test_records_of_a_commit_are_those_of_the_codec(seed: int) -> None:
    """Also in a batch that has records already: offset deltas grow in width with their number."""
    rng = Random(seed)
    before = rng.choice((0, 0, 3, 60, 127, 8_150, 8_192, 16_380))
    builder, expected = BatchBuilder(), []
    for _ in range(before):
        builder.add(b"k", None)
    group, topic = rng.choice(("g", "gruppe-ü", "g" * 90)), rng.choice(("t", "long" * 40))
    for _ in range(rng.randrange(1, 4)):
        rows, model = random_rows(rng, random_partitions(rng))
        write_commit(builder, TopicCommit(group, topic, rows))
        for partition, value in model.items():
            if value.expire_timestamp_ms is not None:
                value = OffsetCommitValue(value.offset, value.leader_epoch, *_v1(value))
            expected.append(encode_record(GroupRecord(OffsetCommitKey(group, topic, partition), value)))
    assert builder.record_count == before + len(expected)
    assert list(builder)[before:] == expected


@pytest.mark.parametrize("before", [0, 60, 8_190])
def test_tombstones_of_a_topic_are_those_of_the_codec(before: int) -> None:
    builder = BatchBuilder()
    for _ in range(before):
        builder.add(b"k", None)
    removal = TopicRemoval("gruppe-ü", "t", (0, 3, 2**31 - 1, *range(10, 90), *range(100, 9_000)))
    write_removal(builder, removal)
    keys = [OffsetCommitKey("gruppe-ü", "t", partition) for partition in removal.partitions]
    assert list(builder)[before:] == [encode_record(GroupRecord(key, None)) for key in keys]


@interpreted_only
def test_removal_copies_a_table_once_and_not_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may delete some ten thousand offsets, in one turn of the event loop."""
    state = EMPTY_STATE
    for partition in range(300):
        value = OffsetCommitValue(partition, -1, "", 1)
        state = replay(state, GroupRecord(OffsetCommitKey("g", "t", partition), value))
    copied: list[object] = []
    without = TopicOffsets.without

    def counted(table: TopicOffsets, *arguments: Any) -> TopicOffsets:
        copied.append(table)
        return without(table, *arguments)

    monkeypatch.setattr(TopicOffsets, "without", counted)
    removal = TopicRemoval("g", "t", (*range(200), 7, 9_999))
    after = replay(state, removal)
    assert len(copied) == 1
    for partition in removal.partitions:
        state = replay(state, GroupRecord(OffsetCommitKey("g", "t", partition), None))
    assert after == state
    assert replay(state, removal) is state


def _v1(value: OffsetCommitValue) -> tuple[str, int, int | None, Uuid]:
    return value.metadata, value.commit_timestamp_ms, value.expire_timestamp_ms, value.topic_id


def test_what_was_added_last_can_be_taken_back() -> None:
    builder, alone = BatchBuilder(), BatchBuilder()
    for one in (builder, alone):
        one.add(b"a", b"1")
    mark = builder.mark
    builder.add(b"b", None)
    builder.cut(mark)
    for one in (builder, alone):
        one.add(b"c", b"3")
    assert list(builder) == [(b"a", b"1"), (b"c", b"3")]
    assert builder.build(5, 9) == alone.build(5, 9)


def load(batches: list[list[tuple[bytes, bytes | None]]]) -> Loader:
    loader, offset = Loader(0), 0
    for batch in batches:
        for _ in loader.load(tools.as_batches(offset, batch)):
            pass
        offset += len(batch)
    for _ in loader.finish():
        pass
    return loader


def old_value(rng: Random, value: OffsetCommitValue) -> bytes:
    """A value of an older version, in Kafka's format."""
    version = rng.randrange(4)
    epoch = value.leader_epoch.to_bytes(4, "big", signed=True) if version == 3 else b""
    text = value.metadata.encode()
    expires = (2**40).to_bytes(8, "big") if version == 1 else b""
    parts = version.to_bytes(2, "big"), value.offset.to_bytes(8, "big"), epoch, len(text).to_bytes(2, "big")
    return b"".join((*parts, text, value.commit_timestamp_ms.to_bytes(8, "big"), expires))


@pytest.mark.parametrize("seed", range(20))
def test_loaded_state_is_that_of_replaying_each_record(seed: int) -> None:
    """Repeated commits, tombstones, topics of the same name, metadata, old versions, unreadable records."""
    rng = Random(seed)
    log: list[tuple[bytes, bytes | None]] = []
    state = EMPTY_STATE
    for _ in range(rng.choice((30, 60))):
        group, topic = f"g{rng.randrange(3)}", rng.choice("tu")
        partitions = random_partitions(rng)
        _, model = random_rows(rng, partitions)
        if rng.random() < 0.4:  # interleaved with another group
            partitions = partitions[:5]
        roll = rng.random()
        for partition in partitions:
            key = OffsetCommitKey(group, topic, partition)
            if roll < 0.2:
                record = GroupRecord(key, None)
                log.append(encode_record(record))
            elif roll < 0.3:
                raw_key, _ = encode_record(GroupRecord(key, None))
                raw = rng.choice((b"\0\0", b"\0\1")) + raw_key[2:], old_value(rng, model[partition])
                decoded = tools.decode(*raw)
                assert decoded is not None
                log.append(raw)
                record = decoded
            else:
                value = model[partition]
                if value.expire_timestamp_ms is not None:
                    value = OffsetCommitValue(value.offset, -1, *_v1(value)[:3])
                record = GroupRecord(key, value)
                log.append(encode_record(record))
            state = replay(state, record)
        if rng.random() < 0.2:
            log += [(b"\x7f\xff", b"later"), (b"\0\1", b"x"), (log[-1][0], b"\0\4"), (log[-1][0], b"\0\x63")]
    size = rng.choice((1, 7, 1_000, 10**6))
    batches = [log[start : start + size] for start in range(0, len(log), size)]
    loaded = load(batches).state
    assert loaded == state
    for group, topics in state.offsets.items():
        for topic, offsets in topics.items():
            assert dict(loaded.offsets[group][topic].items()) == dict(offsets.items())


@pytest.mark.parametrize("topic", ["t", "ü"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_small_tables_are_loaded_as_large_ones(topic: str, count: int) -> None:
    """In random order, each partition twice, with another topic id or a tombstone between them."""
    rng = Random(count)
    records: list[GroupRecord] = []
    for offset in (1, 2):
        for number in rng.sample(range(count), count):
            partition = 40_000 * (number % 3) + number
            key = OffsetCommitKey("g", topic, partition)
            topic_id = IDS[1] if rng.random() < 0.9 else IDS[2]
            records.append(GroupRecord(key, OffsetCommitValue(offset, 3, "", 9, None, topic_id)))
            if rng.random() < 0.05:
                records.append(GroupRecord(key, None))
    state = EMPTY_STATE
    for record in records:
        state = replay(state, record)
    loaded = load([[encode_record(record) for record in records]]).state
    assert loaded == state
    assert {named: dict(groups) for named, groups in loaded.groups_by_topic.items()} == index_of(state)


@pytest.mark.parametrize("group", ["g", "", "ü", "g" * 300])
@pytest.mark.parametrize("topic", ["t", "ü", "t" * 249])
@pytest.mark.parametrize("topic_id", [IDS[0], ZERO_UUID], ids=["topic id", "no topic id"])
@interpreted_only
def test_no_plain_offset_is_decoded_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, group: str, topic: str, topic_id: Uuid
) -> None:
    """Groups have millions of them, and they are taken over in passing; only others are decoded."""
    decoded: list[bytes] = []

    def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
        decoded.append(key)
        return decode_record(key, value)

    monkeypatch.setattr(loading, "decode_record", decode)
    values = [OffsetCommitValue(number, 3, "", 9, None, topic_id) for number in range(300)]
    records = [
        GroupRecord(OffsetCommitKey(group, topic, number % 150), value) for number, value in enumerate(values)
    ]
    last = encode_record(GroupRecord(OffsetCommitKey(group, topic, 7), replace(values[7], metadata="note")))
    loaded = load([[*map(encode_record, records), last]]).state
    assert decoded == [last[0]]
    expected = dict(enumerate(values[150:])) | {7: replace(values[7], metadata="note")}
    assert dict(loaded.offsets[group][topic].items()) == expected


@pytest.mark.parametrize("prefix", [b"\0\1", b"\0\1\0", b"\0\1\0\xff", b"\0\1\xff\xffg", b"\0\1\0\1g\0\2t"])
def test_offset_whose_key_is_malformed_is_skipped(prefix: bytes) -> None:
    key, value = encode_record(
        GroupRecord(OffsetCommitKey("g", "t", 1), OffsetCommitValue(1, 3, "", 9, None, IDS[1]))
    )
    loaded = load([[(prefix + bytes(4), value), (key, value), (prefix + bytes(4), value)]]).state
    assert [(group, list(topics)) for group, topics in loaded.offsets.items()] == [("g", ["t"])]


def test_batch_that_is_cut_short_costs_only_its_own_records() -> None:
    records = [
        encode_record(GroupRecord(OffsetCommitKey("g", "t", n), OffsetCommitValue(n, 1, "", 5)))
        for n in range(20)
    ]
    (whole,) = tools.as_batches(0, records)
    for end in range(len(whole.body)):
        loader = Loader(0)
        for _ in loader.load([whole._replace(body=whole.body[:end]), *tools.as_batches(20, records[:1])]):
            pass
        for _ in loader.finish():
            pass
        kept = loader.state.group_offsets("g")["t"]
        assert list(kept) == list(range(max(1, len(kept))))
        assert all(value.offset == partition for partition, value in kept.items())


def test_commit_and_its_records_replay_to_the_same_state() -> None:
    for seed in range(30):
        rng = Random(seed)
        live = replayed = EMPTY_STATE
        for _ in range(5):
            rows, model = random_rows(rng, random_partitions(rng))
            live = replay(live, TopicCommit("g", "t", rows))
            keyed = [GroupRecord(OffsetCommitKey("g", "t", n), value) for n, value in model.items()]
            replayed = replay_all(replayed, keyed)
            assert live == replayed


def test_builder_holds_room_for_the_header_of_its_batch() -> None:
    builder = BatchBuilder()
    assert (builder.size_bytes, len(builder), list(builder)) == (HEADER_BYTES, 0, [])
