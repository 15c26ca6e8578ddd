"""The records of an offset commit, as one value for each topic and without an object for each partition.

Written as Kafka 4.3 writes them: OffsetCommitValue version 4, with the topic id as a tagged field, or version
1 for a commit that asks for a retention time of its own (which has neither leader epoch nor topic id). Equal
to what :mod:`.codec` makes of each record by itself, which tests compare. Records of equal length differ in
a few bytes at known places, so many of them are written as columns: ``block[place::length] = column``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import NamedTuple

from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.offset_table import ROW_BYTES, Rows, unpack_row
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.kafka_protocol.batch_builder import NO_HEADERS, BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.primitives import write_uvarint, write_varint
from pykraft.kafka_protocol.record_walk import PERIOD, offset_delta_columns

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_KEY_TYPE = _INT16.pack(1)
_VALUE_VERSION = _INT16.pack(4)
_INDEX_BYTES = _INT32.size
_FIELDS_BYTES = 12
"""Offset and leader epoch: together at the beginning of a row and behind the version of a value."""

_TIMESTAMP_BYTES = ROW_BYTES - _FIELDS_BYTES
_NO_METADATA = b"\x01"
_NO_TAGS = b"\x00"
_END = _NO_TAGS + NO_HEADERS
_ATTRIBUTES = b"\0\0"
"""The attributes of a record, and its timestamp delta."""

_TOMBSTONE_END = b"\x01" + NO_HEADERS
"""The length of a value that is null, and what follows it."""

LEAST_TOMBSTONE_BYTES = 17
"""The least size of a tombstone of an offset, without the names of group and topic."""

_TOPIC_ID_TAG = b"\x01\x00\x10"
"""One tagged field, number 0, of 16 bytes."""

_FEW = 8
"""So many records are joined one by one as fast as column by column."""

pack_index = _INT32.pack
_pack_int16 = _INT16.pack


class TopicCommit(NamedTuple):
    """One request's commits to one topic. All rows have the same commit timestamp."""

    group_id: str
    topic: str
    rows: Rows


class TopicRemoval(NamedTuple):
    """The offsets of one topic that are deleted: one tombstone for each partition."""

    group_id: str
    topic: str
    partitions: Sequence[int]


def write_removal(builder: BatchBuilder, removal: TopicRemoval) -> None:
    """Add the tombstones of a removal to a batch."""
    key = _key_head(removal.group_id, removal.topic)
    if len(removal.partitions) > _FEW:
        _write_tombstones(builder, removal.partitions, key)
        return
    size = 2 + len(key) + _INDEX_BYTES + len(_TOMBSTONE_END)
    count = builder.record_count
    parts: list[bytes] = []
    for number, partition in enumerate(removal.partitions, count):
        delta = _varint(number)
        parts += (
            _varint(size + len(delta)),
            _ATTRIBUTES,
            delta,
            key,
            pack_index(partition),
            _TOMBSTONE_END,
        )
    builder.add_encoded(b"".join(parts), len(removal.partitions))


def _write_tombstones(builder: BatchBuilder, partitions: Sequence[int], key: bytes) -> None:
    """Write many tombstones, as :func:`_write_columns` does for commits."""
    indexes = pack(f">{len(partitions)}i", *partitions)
    done, count = 0, len(partitions)
    while done < count:
        columns = _next_deltas(builder, count - done)
        width, number = len(columns), len(columns[0])
        head = _varint(2 + width + len(key) + _INDEX_BYTES + len(_TOMBSTONE_END)) + _ATTRIBUTES
        index_at = len(head) + width + len(key)
        one = b"".join((head, bytes(width), key, bytes(_INDEX_BYTES), _TOMBSTONE_END))
        block = bytearray(one * number)
        for place, column in enumerate(columns, len(head)):
            block[place :: len(one)] = column
        begin, end = done * _INDEX_BYTES, (done + number) * _INDEX_BYTES
        for place in range(_INDEX_BYTES):
            block[index_at + place :: len(one)] = indexes[begin + place : end : _INDEX_BYTES]
        builder.add_encoded(block, number)
        done += number


def _next_deltas(builder: BatchBuilder, count: int) -> Sequence[bytes]:
    """The columns of the next offset deltas, as many as have the same width."""
    delta = builder.record_count
    width = 1 if delta < 1 << 6 else 2 if delta < 1 << 13 else 3 if delta < 1 << 20 else 4
    return offset_delta_columns(delta, min(count, PERIOD - delta % PERIOD), width)


def write_commit(builder: BatchBuilder, commit: TopicCommit) -> None:
    """Add the records of a commit to a batch."""
    partitions, rows, topic_id, extras = commit.rows
    if extras is not None:
        _write_with_extras(builder, commit)
        return
    key = _key_head(commit.group_id, commit.topic)
    timestamp = rows[_FIELDS_BYTES:ROW_BYTES]
    if topic_id == ZERO_UUID:
        middle, tail = _MIDDLE, _NO_METADATA + timestamp + _END
    else:
        middle, tail = (
            _MIDDLE_WITH_ID,
            b"".join((_NO_METADATA, timestamp, _TOPIC_ID_TAG, topic_id, NO_HEADERS)),
        )
    if len(partitions) > _FEW:
        _write_columns(builder, partitions, rows, (key, middle, tail))
        return
    size = 2 + len(key) + _INDEX_BYTES + len(middle) + _FIELDS_BYTES + len(tail)
    at = 0
    for partition in partitions:
        delta = _varint(builder.record_count)
        head = _varint(size + len(delta))
        fields = rows[at : at + _FIELDS_BYTES]
        encoded = b"".join((head, _ATTRIBUTES, delta, key, pack_index(partition), middle, fields, tail))
        builder.add_encoded(encoded, 1)
        at += ROW_BYTES


def _write_columns(
    builder: BatchBuilder, partitions: Sequence[int], rows: bytes, parts: tuple[bytes, bytes, bytes]
) -> None:
    """Write many records, as many at a time as have offset deltas of the same width."""
    key, middle, tail = parts
    indexes = pack(f">{len(partitions)}i", *partitions)
    done, count = 0, len(partitions)
    while done < count:
        columns = _next_deltas(builder, count - done)
        width, number = len(columns), len(columns[0])
        size = 2 + width + len(key) + _INDEX_BYTES + len(middle) + _FIELDS_BYTES + len(tail)
        head = _varint(size) + b"\0\0"
        index_at = len(head) + width + len(key)
        fields_at = index_at + _INDEX_BYTES + len(middle)
        length = fields_at + _FIELDS_BYTES + len(tail)
        one = b"".join((head, bytes(width), key, bytes(_INDEX_BYTES), middle, bytes(_FIELDS_BYTES), tail))
        block = bytearray(one * number)
        for place, column in enumerate(columns, len(head)):
            block[place::length] = column
        begin, end = done * _INDEX_BYTES, (done + number) * _INDEX_BYTES
        for place in range(_INDEX_BYTES):
            block[index_at + place :: length] = indexes[begin + place : end : _INDEX_BYTES]
        begin, end = done * ROW_BYTES, (done + number) * ROW_BYTES
        for place in range(_FIELDS_BYTES):
            block[fields_at + place :: length] = rows[begin + place : end : ROW_BYTES]
        builder.add_encoded(block, number)
        done += number


def _write_with_extras(builder: BatchBuilder, commit: TopicCommit) -> None:
    """Write records of which some have metadata or an expiry time."""
    partitions, rows, topic_id, extras = commit.rows
    assert extras is not None
    key = build_key_start(commit.group_id, commit.topic)
    tags = _tags(topic_id)
    at = 0
    for partition in partitions:
        extra = extras.get(partition)
        if extra is not None and extra.expire_timestamp_ms is not None:
            offset, leader_epoch, timestamp_ms = unpack_row(rows, at)
            value = OffsetCommitValue(offset, leader_epoch, extra.metadata, timestamp_ms, extra[1], topic_id)
            builder.add(
                *encode_record(GroupRecord(OffsetCommitKey(commit.group_id, commit.topic, partition), value))
            )
        else:
            out = bytearray(_VALUE_VERSION)
            out += rows[at : at + _FIELDS_BYTES]
            metadata = b"" if extra is None else extra.metadata.encode()
            write_uvarint(out, len(metadata) + 1)
            out += metadata
            out += rows[at + _FIELDS_BYTES : at + ROW_BYTES]
            out += tags
            builder.add(key + pack_index(partition), bytes(out))
        at += ROW_BYTES


def build_key_start(group_id: str, topic: str) -> bytes:
    """A key up to the partition."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KEY_TYPE, _pack_int16(len(group)), group, _pack_int16(len(name)), name))


def _key_head(group_id: str, topic: str) -> bytes:
    """The length of a key, and the key up to the partition."""
    start = build_key_start(group_id, topic)
    return _varint(len(start) + _INDEX_BYTES) + start


def _tags(topic_id: Uuid) -> bytes:
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id


def _middle(tail_bytes: int) -> bytes:
    """The length of a value without metadata, and its version."""
    return _varint(len(_VALUE_VERSION) + _FIELDS_BYTES + tail_bytes) + _VALUE_VERSION


def _varint(number: int) -> bytes:
    if number < 1 << 6:
        return bytes((2 * number,))
    if number < 1 << 13:
        return bytes((2 * number & 0x7F | 0x80, number >> 6))
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


_MIDDLE = _middle(len(_NO_METADATA) + _TIMESTAMP_BYTES + len(_NO_TAGS))
_MIDDLE_WITH_ID = _middle(len(_NO_METADATA) + _TIMESTAMP_BYTES + len(_TOPIC_ID_TAG) + len(ZERO_UUID))


def too_large() -> KafkaError:
    """The error of a request that takes more than one batch: it would not be all or nothing."""
    return KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "The records do not fit into one batch.")
