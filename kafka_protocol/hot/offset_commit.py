"""Hand-written OffsetCommit codec: requests of version 2 to 10 parsed in place, responses in one pass.

No object is made for a partition. A partition without metadata has the same length as the one before it, so
the partitions of a topic are copied field by field, as columns (``body[place::length]``), and only
their indexes become numbers. Others are read one by one. Nothing that is returned refers to the frame.
Checked in tests against the table-driven messages for every version. Decides nothing about offsets; malformed
bodies raise :class:`ProtocolError`; bytes after the body are ignored, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct, pack, unpack
from struct import error as struct_error
from typing import NamedTuple, TypeAlias

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.hot.wire import (
    INT16_BYTES,
    INT32_BYTES,
    UUID_BYTES,
    check_count,
    layout,
    pack_int16,
    pack_int32,
    pack_int32_into,
    read_compact_text,
    read_nullable_compact_text,
    read_text,
    since,
    skip_tags,
    unpack_int16,
    unpack_int32,
    write_count,
)
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages import offsets as tables
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint

MAX_TOPICS = 20_000
"""The records of so many do not fit into a batch of the default size. Without a limit empty topics, of four
bytes each, would hold the event loop for seconds.
"""

SLICE_TOPICS = 500
SLICE_PARTITIONS = 2_000
"""How much is parsed or written in a slice: some 2 ms. Partitions without metadata are not counted."""

_FLEXIBLE_FROM = tables.OffsetCommitRequest.FLEXIBLE_FROM
_TOPIC_IDS_FROM = since(tables.OffsetCommitRequestTopic, "topic_id")
_EPOCHS_FROM = since(tables.OffsetCommitRequestPartition, "committed_leader_epoch")
_INSTANCES_FROM = since(tables.OffsetCommitRequest, "group_instance_id")
_RETENTION_UNTIL = 4
_THROTTLE_FROM = since(tables.OffsetCommitResponse, "throttle_time_ms")
_MIN_TOPIC_BYTES = 3
_MIN_PARTITION_BYTES = 14

_GENERATION_BYTES = layout(tables.OffsetCommitRequest, "generation_id_or_member_epoch", _FLEXIBLE_FROM).size
_RETENTION = layout(tables.OffsetCommitRequest, "retention_time_ms", _RETENTION_UNTIL)
_PARTITION = layout(tables.OffsetCommitRequestPartition, "partition_index", _EPOCHS_FROM)
_PARTITION_BYTES = _PARTITION.size
_OLD_PARTITION_BYTES = layout(
    tables.OffsetCommitRequestPartition, "partition_index", tables.OffsetCommitRequest.MIN_VERSION
).size
_INDEX_BYTES = INT32_BYTES
_BARE_BYTES = _PARTITION_BYTES + 2
"""A partition with leader epoch and without metadata: in a flexible version its length and an empty tagged
section follow, in others a length of two bytes.
"""

FIELDS = Struct(">qi")
"""Offset and leader epoch: as they follow the index of a partition."""

FIELDS_BYTES = FIELDS.size
_NO_EPOCH = pack_int32(-1)
_NULL_LENGTH = pack_int16(-1)

_RESULT = layout(tables.OffsetCommitResponsePartition, "partition_index", _FLEXIBLE_FROM)
_RESULT_BYTES = _RESULT.size
_pack_result = _RESULT.pack


CommitCodes: TypeAlias = int | Sequence[int | Sequence[int]]


class CommitTopic(NamedTuple):
    """``name`` up to version 9, ``topic_id`` from version 10; the other is empty or zero.

    ``fields`` holds offset and leader epoch of each partition (:data:`FIELDS`), -1 for an epoch that the
    version does not have. ``metadata`` is None if all of it is null or empty.
    """

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]
    fields: bytes
    metadata: Sequence[str | None] | None


class CommitRequestView(NamedTuple):
    """A parsed request. ``topics`` keeps the client's order, which the response repeats.

    ``fields_at``: the place of the fields in the body if one partition without metadata is all that is
    committed, otherwise -1.
    """

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[CommitTopic]
    fields_at: int = -1


def parse_offset_commit(body: memoryview, position: int, version: int) -> CommitRequestView:
    """Parse the body that starts at ``position``: a small one, which is sliced faster as bytes."""
    return at_once(parse_in_slices(bytes(body), position, version))


class UsualCommit:
    """A commit that a client repeats: one partition, without metadata. Only its offset changes.

    Made from one request, it recognizes those that differ from it in nothing else, without parsing them.
    """

    __slots__ = ("_accepted", "_end", "_start", "_version", "_view")

    def __init__(self, body: memoryview, version: int, view: CommitRequestView) -> None:
        """``view`` is the parsed ``body``, and has its ``fields_at``."""
        self._version = version
        self._start = bytes(body[: view.fields_at])
        self._end = bytes(body[view.fields_at + FIELDS_BYTES :])
        self._view = view
        self._accepted = b""

    def recognize(self, body: memoryview, version: int) -> CommitRequestView | None:
        """The parsed request if it is the usual one, otherwise None."""
        usual = self._view
        fields_at = usual.fields_at
        end_at = fields_at + FIELDS_BYTES
        if version != self._version or body[end_at:] != self._end or body[:fields_at] != self._start:
            return None
        name, topic_id, partitions, _, _ = usual.topics[0]
        topic = CommitTopic(name, topic_id, partitions, bytes(body[fields_at:end_at]), None)
        group_id, generation, member_id, instance_id, retention_ms, _, _ = usual
        return CommitRequestView(
            group_id, generation, member_id, instance_id, retention_ms, [topic], fields_at
        )

    def accept(self, correlation_id: int) -> bytearray:
        """The response without an error, as :func:`build_offset_commit_response` builds it."""
        if not self._accepted:
            self._accepted = bytes(build_offset_commit_response(self._version, 0, self._view.topics, (0,)))
        response = bytearray(self._accepted)
        pack_int32_into(response, SIZE_BYTES, correlation_id)
        return response


def parse_in_slices(
    body: bytes | memoryview, position: int, version: int
) -> Generator[None, None, CommitRequestView]:
    """As :func:`parse_offset_commit`; yields after each slice: some milliseconds."""
    try:
        parse = _parse_flexible if version >= _FLEXIBLE_FROM else _parse_classic
        return (yield from parse(body, position, version))
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed OffsetCommit request: {error}") from None


def _parse_classic(
    body: bytes | memoryview, position: int, version: int
) -> Generator[None, None, CommitRequestView]:
    end = len(body)
    group_id, position = read_text(body, position)
    (generation,) = unpack_int32(body, position)
    member_id, position = read_text(body, position + _GENERATION_BYTES)
    retention_ms, instance_id = -1, None
    if version <= _RETENTION_UNTIL:
        (retention_ms,) = _RETENTION.unpack_from(body, position)
        position += _RETENTION.size
    if version >= _INSTANCES_FROM:
        instance_id, position = _read_nullable_text(body, position)
    (count,) = unpack_int32(body, position)
    position += INT32_BYTES
    _check_topics(count, end - position)
    topics: list[CommitTopic] = []
    fields_at = -1
    for place in range(count):
        if place and not place % SLICE_TOPICS:
            yield
        name, position = read_text(body, position)
        (number,) = unpack_int32(body, position)
        position += INT32_BYTES
        check_count(number, end - position, _MIN_PARTITION_BYTES)
        stop = position + number * _BARE_BYTES
        if version >= _EPOCHS_FROM and stop <= end and _is_bare_classic(body[position:stop], number):
            partitions, fields = _read_bare(body[position:stop], number)
            topics.append(CommitTopic(name, ZERO_UUID, partitions, fields, None))
            position = stop
            if count == number == 1:
                fields_at = stop - _BARE_BYTES + _INDEX_BYTES
        else:
            topic, position = yield from _read_classic(body, position, number, name, version)
            topics.append(topic)
    return CommitRequestView(group_id, generation, member_id, instance_id, retention_ms, topics, fields_at)


def _parse_flexible(
    body: bytes | memoryview, position: int, version: int
) -> Generator[None, None, CommitRequestView]:
    end = len(body)
    group_id, position = read_compact_text(body, position)
    (generation,) = unpack_int32(body, position)
    member_id, position = read_compact_text(body, position + _GENERATION_BYTES)
    instance_id, position = read_nullable_compact_text(body, position)
    count, position = read_uvarint(body, position)
    _check_topics(count - 1, end - position)
    topics: list[CommitTopic] = []
    fields_at = -1
    for place in range(count - 1):
        if place and not place % SLICE_TOPICS:
            yield
        name, topic_id = "", ZERO_UUID
        if version >= _TOPIC_IDS_FROM:
            topic_id = Uuid(bytes(body[position : position + UUID_BYTES]))
            position += UUID_BYTES
        else:
            name, position = read_compact_text(body, position)
        number, position = read_uvarint(body, position)
        number -= 1
        check_count(number, end - position, _MIN_PARTITION_BYTES)
        stop = position + number * _BARE_BYTES
        if stop <= end and _is_bare_flexible(body[position:stop], number):
            partitions, fields = _read_bare(body[position:stop], number)
            topic = CommitTopic(name, topic_id, partitions, fields, None)
            position = stop
            if count - 1 == number == 1:
                fields_at = stop - _BARE_BYTES + _INDEX_BYTES
        else:
            topic, position = yield from _read_flexible(body, position, number, name, topic_id)
        topics.append(topic)
        position = skip_tags(body, position, end)
    skip_tags(body, position, end)
    return CommitRequestView(group_id, generation, member_id, instance_id, -1, topics, fields_at)


def _check_topics(count: int, left_bytes: int) -> None:
    check_count(count, left_bytes, _MIN_TOPIC_BYTES)
    if count > MAX_TOPICS:
        raise ProtocolError(f"an OffsetCommit request of {count} topics")


def _is_bare_flexible(block: bytes | memoryview, number: int) -> bool:
    """Whether all partitions have neither metadata (null: 0, empty: 1) nor tags.

    If the first has none, it ends where the second is looked for, and so on.
    """
    if number == 1:
        return block[_PARTITION_BYTES] <= 1 and not block[_PARTITION_BYTES + 1]
    metadata = bytes(block[_PARTITION_BYTES::_BARE_BYTES])
    tags = bytes(block[_PARTITION_BYTES + 1 :: _BARE_BYTES])
    return not metadata.strip(b"\0\1") and not tags.strip(b"\0")


def _is_bare_classic(block: bytes | memoryview, number: int) -> bool:
    """As :func:`_is_bare_flexible`, with a length of two bytes: -1 (null) or 0."""
    if number == 1:
        (length,) = unpack_int16(block, _PARTITION_BYTES)
        return length in (-1, 0)
    first = bytes(block[_PARTITION_BYTES::_BARE_BYTES])
    return first == bytes(block[_PARTITION_BYTES + 1 :: _BARE_BYTES]) and not first.strip(b"\0\xff")


def _read_bare(block: bytes | memoryview, number: int) -> tuple[tuple[int, ...], bytes]:
    """Indexes and fields of partitions without metadata."""
    if not number:
        return (), b""
    if number == 1:
        return unpack_int32(block), bytes(block[_INDEX_BYTES:_PARTITION_BYTES])
    indexes = bytearray(number * _INDEX_BYTES)
    for place in range(_INDEX_BYTES):
        indexes[place::_INDEX_BYTES] = block[place::_BARE_BYTES]
    fields = bytearray(number * FIELDS_BYTES)
    for place in range(FIELDS_BYTES):
        fields[place::FIELDS_BYTES] = block[_INDEX_BYTES + place :: _BARE_BYTES]
    return unpack(f">{number}i", indexes), bytes(fields)


def _read_classic(
    body: bytes | memoryview, position: int, number: int, name: str, version: int
) -> Generator[None, None, tuple[CommitTopic, int]]:
    size = _PARTITION_BYTES if version >= _EPOCHS_FROM else _OLD_PARTITION_BYTES
    partitions: list[int] = []
    fields, metadata = bytearray(), []
    for place in range(number):
        if place and not place % SLICE_PARTITIONS:
            yield
        partitions += unpack_int32(body, position)
        fields += body[position + _INDEX_BYTES : position + size]
        if version < _EPOCHS_FROM:
            fields += _NO_EPOCH
        position += size
        text, position = _read_nullable_text(body, position)
        metadata.append(text)
    return _make_topic(name, ZERO_UUID, partitions, fields, metadata), position


def _read_nullable_text(body: bytes | memoryview, position: int) -> tuple[str | None, int]:
    if body[position : position + INT16_BYTES] == _NULL_LENGTH:
        return None, position + INT16_BYTES
    return read_text(body, position)


def _read_flexible(
    body: bytes | memoryview, position: int, number: int, name: str, topic_id: Uuid
) -> Generator[None, None, tuple[CommitTopic, int]]:
    end = len(body)
    partitions: list[int] = []
    fields, metadata = bytearray(), []
    for place in range(number):
        if place and not place % SLICE_PARTITIONS:
            yield
        partitions += unpack_int32(body, position)
        fields += body[position + _INDEX_BYTES : position + _PARTITION_BYTES]
        position += _PARTITION_BYTES
        text, position = read_nullable_compact_text(body, position)
        metadata.append(text)
        position = skip_tags(body, position, end)
    return _make_topic(name, topic_id, partitions, fields, metadata), position


def _make_topic(
    name: str, topic_id: Uuid, partitions: list[int], fields: bytearray, metadata: list[str | None]
) -> CommitTopic:
    texts = metadata if any(metadata) else None
    return CommitTopic(name, topic_id, tuple(partitions), bytes(fields), texts)


def build_offset_commit_response(
    version: int, correlation_id: int, topics: Sequence[CommitTopic], codes: CommitCodes
) -> bytearray:
    """The whole frame, size prefix and response header included.

    ``codes``: one error for everything; or for each topic one, or one for each of its partitions.
    """
    return at_once(build_in_slices(version, correlation_id, topics, codes))


def build_in_slices(
    version: int, correlation_id: int, topics: Sequence[CommitTopic], codes: CommitCodes
) -> Generator[None, None, bytearray]:
    """As :func:`build_offset_commit_response`; yields after each slice."""
    out = _start_response(version, correlation_id, len(topics))
    for number, topic in enumerate(topics):
        if number and not number % SLICE_TOPICS:
            yield
        _write_topic(out, version, topic, codes if isinstance(codes, int) else codes[number])
    _end_response(out, version)
    return out


def _start_response(version: int, correlation_id: int, topic_count: int) -> bytearray:
    """Everything before the first topic."""
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(SIZE_BYTES)
    out += pack_int32(correlation_id)
    if flexible:
        out.append(0)  # no tagged fields in the response header
    if version >= _THROTTLE_FROM:
        out += pack_int32(0)
    write_count(out, topic_count, flexible)
    return out


def _end_response(out: bytearray, version: int) -> None:
    if version >= _FLEXIBLE_FROM:
        out.append(0)
    pack_int32_into(out, 0, len(out) - SIZE_BYTES)


def _write_topic(out: bytearray, version: int, topic: CommitTopic, codes: int | Sequence[int]) -> None:
    flexible = version >= _FLEXIBLE_FROM
    if version >= _TOPIC_IDS_FROM:
        out += topic.topic_id
    else:
        raw = topic.name.encode()
        if flexible:
            write_uvarint(out, len(raw) + 1)
        else:
            out += pack_int16(len(raw))
        out += raw
    write_count(out, len(topic.partitions), flexible)
    _write_results(out, topic.partitions, codes, flexible)
    if flexible:
        out.append(0)


def _write_results(
    out: bytearray, partitions: tuple[int, ...], codes: int | Sequence[int], flexible: bool
) -> None:
    """Index and error of each partition, written as columns."""
    if not partitions:
        return
    number, length = len(partitions), _RESULT_BYTES + flexible
    if number == 1 and isinstance(codes, int):
        out += _pack_result(partitions[0], codes)
        if flexible:
            out.append(0)
        return
    one = bytes(_INDEX_BYTES) + pack_int16(codes if isinstance(codes, int) else 0) + bytes(flexible)
    block = bytearray(one * number)
    indexes = pack(f">{number}i", *partitions)
    for place in range(_INDEX_BYTES):
        block[place::length] = indexes[place::_INDEX_BYTES]
    if not isinstance(codes, int):
        errors = pack(f">{number}h", *codes)
        for place in range(INT16_BYTES):
            block[_INDEX_BYTES + place :: length] = errors[place::INT16_BYTES]
    out += block
