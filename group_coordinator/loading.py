"""Makes the state of a shard from its log, a slice at a time, with a result equal to replaying each record.

Almost all records of a large log are committed offsets. They are read where they are in their batch, without
an object for each: the key up to the partition names a table, and what of the value goes into a row is
appended to it. Only when the whole log is read are rows that a later record replaced dropped (and before, as
often as a table has doubled), and the tables become part of the state. Every other record is decoded and
replayed. Records that are unknown or cannot be decoded are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from struct import Struct, unpack
from typing import NamedTuple

from pykraft.group_coordinator.codec import decode_record
from pykraft.group_coordinator.commits import build_key_start
from pykraft.group_coordinator.offset_table import (
    NO_PARTITIONS,
    ROW_BYTES,
    Extra,
    Rows,
    TopicCounts,
    TopicOffsets,
    make_extra,
    pack_row,
)
from pykraft.group_coordinator.records import OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.replay import make_simple_group, replay
from pykraft.group_coordinator.state import EMPTY_STATE, GroupOffsets, ShardState, TopicKey
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint_tail, read_varlong
from pykraft.metadata_log.persistent import Map

log = logging.getLogger(__name__)

SLICE_STEPS = 2_000
"""Steps of one slice: a committed offset is one step, some microseconds."""

_OTHER_STEPS = 40
"""The steps of a record that is decoded and replayed by itself."""

_TABLE_STEPS = 10
"""The steps of a table that becomes part of the state, besides one for every eighth row."""

_LEAST_ROWS = 512
"""Tables with fewer rows are not cleaned up before the end."""

_INDEX = Struct(">i")
_INDEX_BYTES = _INDEX.size
_KEY_TYPE = b"\x00\x01"
_PLAIN_HEAD = b"\x00\x04"
_FIELDS_AT, _FIELDS_END = 2, 14
_TIME_AT, _TIME_END = 15, 23
"""Offset and leader epoch, then the commit timestamp, in a value of version 4 with empty metadata."""

_UNKNOWN_TAGS = b"\xff"
"""No value ends like that: before the first offset of a table."""

_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
_TAGGED_BYTES = len(_TOPIC_ID_TAG) + 16
_GROUP_AT = 4
"""Where the group id begins in a key: behind the type and its own length."""


class BatchBody(NamedTuple):
    """The decompressed records of one batch; those below ``start_offset`` are not wanted."""

    base_offset: int
    record_count: int
    body: bytes
    start_offset: int = 0


class _Table:
    """The offsets of a group and topic in the order of the log, also those that were replaced since."""

    __slots__ = ("dead", "due_bytes", "extras", "group_id", "indexes", "rows", "tags", "topic", "topic_id")

    def __init__(self, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.topic = topic
        self.topic_id: Uuid = ZERO_UUID
        self.tags = _UNKNOWN_TAGS
        """The end of the values that go into rows: it has the topic id."""
        self.indexes = bytearray()
        self.rows = bytearray()
        self.extras: dict[int, Extra] | None = None
        """By the number of the row, not by the partition."""
        self.dead: set[int] | None = None
        """The numbers of rows that stand for a tombstone."""
        self.due_bytes = 2 * _LEAST_ROWS * ROW_BYTES
        """With so many bytes of rows half of them or more may have been replaced."""

    def add(self, index: bytes, value: OffsetCommitValue | None) -> None:
        """Add a record that is not plain."""
        number = len(self.indexes) // _INDEX_BYTES
        self.indexes += index
        if value is None:
            self.dead = self.dead or set()
            self.dead.add(number)
            self.rows += bytes(ROW_BYTES)
            return
        self.rows += pack_row(value.offset, value.leader_epoch, value.commit_timestamp_ms)
        if self.tags == _UNKNOWN_TAGS:
            self.topic_id = value.topic_id
            self.tags = _NO_TAGS if value.topic_id == ZERO_UUID else _TOPIC_ID_TAG + value.topic_id
        extra = make_extra(value.metadata, value.expire_timestamp_ms, value.topic_id)
        if extra is None and value.topic_id != self.topic_id:
            extra = Extra("", None, value.topic_id)
        if extra is not None:
            self.extras = self.extras or {}
            self.extras[number] = extra

    def clean(self) -> tuple[int, ...]:
        """Keep the last row of each partition, in order of the partitions; returns the partitions."""
        count = len(self.indexes) // _INDEX_BYTES
        indexes = unpack(f">{count}i", self.indexes)
        if not self.dead and count and indexes == tuple(range(indexes[0], indexes[0] + count)):
            partitions = indexes
        else:
            newest = dict(zip(indexes, range(count), strict=True))
            dead, extras, rows = self.dead or (), self.extras, self.rows
            partitions = tuple(sorted(index for index, number in newest.items() if number not in dead))
            numbers = [newest[index] for index in partitions]
            self.rows = bytearray().join([rows[n * ROW_BYTES : (n + 1) * ROW_BYTES] for n in numbers])
            self.indexes = bytearray().join([_INDEX.pack(index) for index in partitions])
            if extras is not None:
                self.extras = {place: extras[n] for place, n in enumerate(numbers) if n in extras} or None
            self.dead = None
        self.due_bytes = 2 * max(len(partitions), _LEAST_ROWS) * ROW_BYTES
        return partitions

    def offsets(self) -> TopicOffsets:
        partitions = self.clean()
        if not partitions:
            return NO_PARTITIONS
        extras = None
        if self.extras is not None:
            extras = {partitions[number]: extra for number, extra in self.extras.items()}
        return NO_PARTITIONS.with_rows(Rows(partitions, bytes(self.rows), self.topic_id, extras), {})


class Loader:
    """One load. :meth:`load` takes the log in order; after :meth:`finish` ``state`` is the result."""

    def __init__(self, partition: int) -> None:
        self.state: ShardState = EMPTY_STATE
        self._partition = partition
        self._tables: dict[bytes, _Table] = {}
        """By the key of a record up to the partition."""
        self._topic_ids: dict[bytes, Uuid] = {}

    def load(self, batches: Iterable[BatchBody]) -> Iterator[int]:
        """Read batches; yields the number of steps after each slice."""
        for batch in batches:
            try:
                yield from self._load(batch)
            except (IndexError, ProtocolError) as error:
                log.error("__consumer_offsets-%d, batch %d: %s", self._partition, batch.base_offset, error)

    def _load(self, batch: BatchBody) -> Iterator[int]:
        """The hot loop: the common case of each varint is inlined, the others call a function."""
        base_offset, count, body, start_offset = batch
        size, tables = len(body), self._tables
        unwanted = start_offset - base_offset
        prefix, table = b"", _Table("", "")
        position = steps = 0
        for _ in range(count):
            n = body[position]
            position += 1
            if n > 127:
                m = body[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_uvarint_tail(body, position, n)
            end = position + (n >> 1)
            if n & 1 or end > size:
                raise ProtocolError("a record is cut short")
            position += 1  # the record's attributes: unused
            if body[position] > 127:
                _, position = read_varlong(body, position)
            else:
                position += 1
            delta = body[position]
            position += 1
            if delta > 127:
                delta, position = read_uvarint_tail(body, position, delta)
            n = body[position]
            position += 1
            if n > 127:
                n, position = read_uvarint_tail(body, position, n)
            key_at, key_end = position, position + (n >> 1)
            if n & 1 or key_end >= end:
                if n != 1:
                    raise ProtocolError("a key does not fit into its record")
                position = end  # a record without a key
                continue
            n = body[key_end]
            value_at = key_end + 1
            if n > 127:
                n, value_at = read_uvarint_tail(body, value_at, n)
            value_end = value_at + (n >> 1)
            if value_end >= end or (n & 1 and n != 1):
                raise ProtocolError("a value does not fit into its record")
            position = end
            if delta >> 1 < unwanted:
                continue
            index_at = key_end - _INDEX_BYTES
            if body[key_at:index_at] != prefix or not prefix:
                known = tables.get(body[key_at:index_at])
                if known is None:
                    known = self._begin_table(body[key_at:index_at], body[value_at:value_end])
                    steps += _TABLE_STEPS
                if known is None:
                    value = None if n & 1 else body[value_at:value_end]
                    self._replay(base_offset + (delta >> 1), body[key_at:key_end], value)
                    steps += _OTHER_STEPS
                    if steps >= SLICE_STEPS:
                        yield steps
                        steps = 0
                    continue
                if len(table.rows) >= table.due_bytes:
                    table.clean()
                prefix, table = body[key_at:index_at], known
            if (
                body[value_at + _TIME_END : value_end] == table.tags
                and body[value_at : value_at + _FIELDS_AT] == _PLAIN_HEAD
                and body[value_at + _FIELDS_END] == 1
            ):
                table.indexes += body[index_at:key_end]
                table.rows += body[value_at + _FIELDS_AT : value_at + _FIELDS_END]
                table.rows += body[value_at + _TIME_AT : value_at + _TIME_END]
                steps += 1
            else:
                value = None if n & 1 else body[value_at:value_end]
                self._replay(base_offset + (delta >> 1), body[key_at:key_end], value)
                steps += _OTHER_STEPS
            if steps >= SLICE_STEPS:
                if len(table.rows) >= table.due_bytes:
                    table.clean()
                yield steps
                steps = 0
        if position != size:
            raise ProtocolError("bytes follow the last record")
        if len(table.rows) >= table.due_bytes:
            table.clean()
        yield steps

    def _begin_table(self, name: bytes, value: bytes) -> _Table | None:
        """The table of a plain offset that is the first of its group and topic; None if it is not plain."""
        tags = value[_TIME_END:]
        if tags != _NO_TAGS and not (tags.startswith(_TOPIC_ID_TAG) and len(tags) == _TAGGED_BYTES):
            return None
        if not value.startswith(_PLAIN_HEAD) or value[_FIELDS_END] != 1 or not name.startswith(_KEY_TYPE):
            return None
        if len(name) < _GROUP_AT:
            return None
        group_end = _GROUP_AT + int.from_bytes(name[_GROUP_AT - 2 : _GROUP_AT], "big", signed=True)
        topic_at = group_end + 2
        topic_end = topic_at + int.from_bytes(name[group_end:topic_at], "big", signed=True)
        if not _GROUP_AT <= group_end < topic_at <= topic_end == len(name):
            return None
        try:
            table = _Table(str(name[_GROUP_AT:group_end], "utf-8"), str(name[topic_at:], "utf-8"))
        except UnicodeDecodeError:
            return None
        table.tags = tags
        if tags != _NO_TAGS:
            table.topic_id = self._topic_ids.setdefault(tags, Uuid(tags[len(_TOPIC_ID_TAG) :]))
        self._tables[name] = table
        return table

    def _replay(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Replay a record that is not a plain offset of a known group and topic."""
        try:
            record = decode_record(key, value)
        except ProtocolError as error:
            log.error("__consumer_offsets-%d, offset %d: %s", self._partition, offset, error)
            return
        if record is None:
            return
        if not isinstance(record.key, OffsetCommitKey):
            self.state = replay(self.state, record)
            return
        name = build_key_start(record.key.group_id, record.key.topic)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table(record.key.group_id, record.key.topic)
        assert record.value is None or isinstance(record.value, OffsetCommitValue)
        table.add(_INDEX.pack(record.key.partition), record.value)

    def finish(self) -> Iterator[int]:
        """Make the offsets part of the state; yields the number of steps after each slice."""
        groups = self.state.groups
        offsets: Map[str, GroupOffsets] = Map()
        by_topic: dict[TopicKey, Map[str, int]] = {}
        names: dict[str, str] = {}
        steps = 0
        while self._tables:
            _, table = self._tables.popitem()
            steps += _TABLE_STEPS + len(table.rows) // (8 * ROW_BYTES)
            group_id = names.setdefault(table.group_id, table.group_id)
            topic = names.setdefault(table.topic, table.topic)
            partitions = table.offsets()
            if partitions:
                offsets = offsets.set(group_id, offsets.get(group_id, _NO_TOPICS).set(topic, partitions))
                if group_id not in groups:
                    groups = groups.set(group_id, make_simple_group(group_id))
                counts: TopicCounts = {}
                partitions.count_topics(counts)
                for topic_id, number in counts.items():
                    named = topic, topic_id
                    by_topic[named] = by_topic.get(named, _NO_GROUPS).set(group_id, number)
            if steps >= SLICE_STEPS:
                yield steps
                steps = 0
        self.state = ShardState(groups, offsets, Map(by_topic))
        yield steps


_NO_TOPICS: GroupOffsets = Map()
_NO_GROUPS: Map[str, int] = Map()
