"""The committed offsets of a load until the whole log is read: tables of rows in the order of the log.

A table holds what is copied of each record; rows that a later record replaced are dropped at the end, and
before that as often as the table has doubled.
"""

from __future__ import annotations

from struct import Struct

from pykraft.group_coordinator.state.group_offsets import GroupOffsets, OneTopic
from pykraft.group_coordinator.state.offset_table import (
    ROW_BYTES,
    Extra,
    Rows,
    TopicOffsets,
    make_extra,
    pack_row,
)
from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.group_coordinator.state.shard_state import TopicKey
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.metadata_log.persistent import Map, MapMutation

_NO_OFFSETS: Map[str, GroupOffsets] = Map()
_NO_GROUPS: Map[str, int] = Map()
_LEAST_ROWS = 512
"""Tables with fewer rows are not cleaned up before the end."""
INDEX = Struct(">i")
INDEX_BYTES = INDEX.size
CHUNK_BYTES = INDEX_BYTES - 1
_KEY_TYPE = b"\x00\x01"
PLAIN_HEAD = b"\x00\x04"
FIELDS_AT, FIELDS_END = 2, 14
_TIME_AT, TIME_END = 15, 23
"""Offset and leader epoch, then the commit timestamp, in a value of version 4 with empty metadata."""
_UNIT = Struct(">i3x12sx8s")
"""What is copied of a record: from the partition in its key to the timestamp in its value. The length of the
value, its version and that of its metadata lie between.
"""
_FIELDS_OF_UNIT = Struct(">i3x21s")
"""The partition and, in one piece, the rest of a row with the length of the metadata in it."""
_FIELDS_IN_UNIT, _TIME_IN_UNIT = 7, 20
_FIELDS_BYTES = FIELDS_END - FIELDS_AT
_FEW_BYTES = 64 * _UNIT.size
SMALL_HEAD = bytes((2 * 42,)) + PLAIN_HEAD
"""The length and the version of a value with a topic id and without metadata."""
SMALL_BYTES = 16 * _UNIT.size
"""A larger table is no string of bytes, which is copied with each record."""
_NO_HEAD = b"\xff"
"""No value begins like that: before the first offset of a table."""
NO_TAGS = b"\x00"
TOPIC_ID_TAG = b"\x01\x00\x10"
TAGGED_BYTES = len(TOPIC_ID_TAG) + 16
GROUP_AT = 4
"""Where the group id begins in a key: behind the type and its own length."""


class Table:
    """The offsets of 256 partitions of a group and topic in the order of the log, also replaced ones.

    So no table is large: to clean one up takes a few hundred microseconds.
    """

    __slots__ = ("dead", "due_bytes", "extras", "group_id", "head", "tags", "topic", "topic_id", "units")

    def __init__(self, group_id: str, topic: str, topic_id: Uuid = ZERO_UUID, tags: bytes = b"") -> None:
        """``tags``: the end of the values that are taken as they are; it has the topic id."""
        self.group_id = group_id
        self.topic = topic
        self.topic_id = topic_id
        self.tags = tags
        self.head = bytes((2 * (TIME_END + len(tags)),)) + PLAIN_HEAD if tags else _NO_HEAD
        """The length and the version of such values."""
        self.units = bytearray()
        self.extras: dict[int, Extra] | None = None
        """By the number of the unit, not by the partition."""
        self.dead: set[int] | None = None
        """The numbers of units that stand for a tombstone."""
        self.due_bytes = 2 * _LEAST_ROWS * _UNIT.size
        """With so many bytes of units half of them or more may have been replaced."""

    @classmethod
    def of_small(cls, name: bytes, small: bytes) -> Table:
        group_id, topic = read_name(name)
        tags = small[:TAGGED_BYTES]
        table = cls(group_id, topic, Uuid(tags[len(TOPIC_ID_TAG) :]), tags)
        table.units += small[TAGGED_BYTES:]
        return table

    def add(self, index: int, value: OffsetCommitValue | None) -> None:
        """Add a record that is not plain."""
        number = len(self.units) // _UNIT.size
        if value is None:
            self.dead = self.dead or set()
            self.dead.add(number)
            self.units += _UNIT.pack(index, b"", b"")
            return
        row = pack_row(value.offset, value.leader_epoch, value.commit_timestamp_ms)
        self.units += _UNIT.pack(index, row[:_FIELDS_BYTES], row[_FIELDS_BYTES:])
        if not self.tags:
            self.topic_id = value.topic_id
            self.tags = NO_TAGS if value.topic_id == ZERO_UUID else TOPIC_ID_TAG + value.topic_id
            self.head = bytes((2 * (TIME_END + len(self.tags)),)) + PLAIN_HEAD
        extra = make_extra(value.metadata, value.expire_timestamp_ms, value.topic_id)
        if extra is None and value.topic_id != self.topic_id:
            extra = Extra("", None, value.topic_id)
        if extra is not None:
            self.extras = self.extras or {}
            self.extras[number] = extra

    def clean(self) -> tuple[int, ...]:
        """Keep the last unit of each partition, in order of the partitions; returns the partitions."""
        count = len(self.units) // _UNIT.size
        partitions = tuple([index for index, _, _ in _UNIT.iter_unpack(self.units)])
        if self.dead or not count or partitions != tuple(range(partitions[0], partitions[0] + count)):
            newest = dict(zip(partitions, range(count), strict=True))
            dead, extras, units = self.dead or (), self.extras, self.units
            partitions = tuple(sorted(index for index, number in newest.items() if number not in dead))
            numbers = [newest[index] for index in partitions]
            self.units = bytearray().join([units[n * _UNIT.size : (n + 1) * _UNIT.size] for n in numbers])
            if extras is not None:
                self.extras = {place: extras[n] for place, n in enumerate(numbers) if n in extras} or None
            self.dead = None
        self.due_bytes = 2 * max(len(partitions), _LEAST_ROWS) * _UNIT.size
        return partitions

    def _column(self, begin: int, width: int, count: int, into: bytearray, at: int) -> None:
        """Copy ``width`` bytes at ``begin`` of each unit to place ``at`` of each of ``count`` items."""
        length = len(into) // count
        for place in range(width):
            into[at + place :: length] = self.units[begin + place :: _UNIT.size]

    def rows(self) -> Rows | None:
        """The newest offsets; None if all were deleted."""
        if self.extras is None and self.dead is None and len(self.units) <= _FEW_BYTES:
            return few_rows(self.units, self.topic_id) if self.units else None
        partitions = self.clean()
        if not partitions:
            return None
        extras = None
        if self.extras is not None:
            extras = {partitions[number]: extra for number, extra in self.extras.items()}
        count = len(partitions)
        rows = bytearray(count * ROW_BYTES)
        self._column(_FIELDS_IN_UNIT, _FIELDS_BYTES, count, rows, 0)
        self._column(_TIME_IN_UNIT, TIME_END - _TIME_AT, count, rows, _FIELDS_BYTES)
        return Rows(partitions, bytes(rows), self.topic_id, extras)


def read_name(name: bytes) -> tuple[str, str]:
    """The group id and the topic of a table whose name is known to be well-formed."""
    places = split_name(name)
    assert places is not None
    group_end, topic_at, topic_end = places
    return str(name[GROUP_AT:group_end], "utf-8"), str(name[topic_at:topic_end], "utf-8")


def few_rows(units: Buffer, topic_id: Uuid) -> Rows:
    newest = dict(_FIELDS_OF_UNIT.iter_unpack(units))
    few = tuple(sorted(newest))
    rows = bytearray().join([newest[index] for index in few])
    del rows[_FIELDS_BYTES :: ROW_BYTES + 1]  # the length of the metadata
    return Rows(few, bytes(rows), topic_id)


def split_name(name: bytes) -> tuple[int, int, int] | None:
    """Where in the name of a table the group id ends, and the topic begins and ends; None: it is no name."""
    size = len(name)
    if size < GROUP_AT or not name.startswith(_KEY_TYPE):
        return None
    group_end = GROUP_AT + (name[GROUP_AT - 2] << 8 | name[GROUP_AT - 1])
    topic_at = group_end + 2
    if topic_at > size:
        return None
    topic_end = topic_at + (name[group_end] << 8 | name[group_end + 1])
    return (group_end, topic_at, topic_end) if topic_end == size - CHUNK_BYTES else None


class Offsets:
    """The offsets of all groups, and the index of their topics, while they are put together."""

    def __init__(self) -> None:
        self.by_group = _NO_OFFSETS.mutate()
        self.by_topic: dict[TopicKey, MapMutation[str, int]] = {}
        # Equal names are kept once.
        self._group_ids: dict[str, str] = {}
        self._topics: dict[str, str] = {}

    def add(self, group_id: str, topic: str, rows: Rows) -> None:
        """Add a table."""
        topic = self._topics.setdefault(topic, topic)
        part = TopicOffsets.of_chunk(rows)
        known_id = self._group_ids.get(group_id)
        if known_id is None:
            self._group_ids[group_id] = group_id
            self.by_group[group_id] = OneTopic(topic, part)
        else:
            group_id, topics = known_id, self.by_group[known_id]
            others = topics.get(topic)
            self.by_group[group_id] = topics.set(
                topic, part if others is None else others.with_rows(rows, {})
            )
        counts = {rows.topic_id: len(rows.partitions)}
        if rows.extras is not None:
            counts.clear()
            part.count_topics(counts)
        for topic_id, number in counts.items():
            groups = self.by_topic.get((topic, topic_id))
            if groups is None:
                groups = self.by_topic[topic, topic_id] = _NO_GROUPS.mutate()
            groups[group_id] = number if known_id is None else groups.get(group_id, 0) + number
