"""Hand-written Produce codec: requests of version 3 to 13 parsed in place, responses written in one pass.

Record sets stay views into the frame, so they are valid (and writable) only as long as the frame is. Long
messages are parsed and built in slices, by the same code. Checked in tests against the table-driven messages
for every version. Decides nothing about records; malformed bodies raise :class:`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from pykraft.kafka_protocol.codec.pace import SLICE_BYTES
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.hot.wire import (
    INT16_BYTES,
    INT32_BYTES,
    UUID_BYTES,
    NodeEndpoint,
    TaggedStruct,
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
    write_compact_text,
    write_node_endpoints,
    write_text,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint

_FLEXIBLE_FROM = tables.ProduceRequest.FLEXIBLE_FROM
_TOPIC_IDS_FROM = since(tables.TopicProduceData, "topic_id")
_MIN_TOPIC_BYTES = 3
_MIN_PARTITION_BYTES = 5

MAX_ELEMENTS = 10_000
"""Topics and partitions of a request, together."""

RESULTS_PER_SLICE = 500

_ACKS_TIMEOUT = layout(tables.ProduceRequest, "acks", _FLEXIBLE_FROM)
_INDEX = layout(tables.PartitionProduceData, "index", _FLEXIBLE_FROM)
_INDEX_SIZE = Struct(_INDEX.format + "i")
"""A partition's index and the size of its record set, where that is not compact."""

_ACKS_TIMEOUT_BYTES, _INDEX_BYTES, _INDEX_SIZE_BYTES = _ACKS_TIMEOUT.size, _INDEX.size, _INDEX_SIZE.size

_LOG_START_FROM = since(tables.PartitionProduceResponse, "log_start_offset")
_MESSAGES_FROM = since(tables.PartitionProduceResponse, "error_message")
_LEADERS_FROM = since(tables.PartitionProduceResponse, "current_leader")
_RESULT_V3 = layout(tables.PartitionProduceResponse, "index", tables.ProduceResponse.MIN_VERSION)
_RESULT_V5 = layout(tables.PartitionProduceResponse, "index", _LOG_START_FROM)
_LEADER = TaggedStruct(tables.PartitionProduceResponse, "current_leader", "leader_id")
_NO_SIZE = bytes(SIZE_BYTES)
_MALFORMED = (struct_error, IndexError, UnicodeDecodeError)


class ProduceRow(NamedTuple):
    """One record set, None as sent. ``topic`` up to version 12, then ``topic_id``; the other is None."""

    topic: str | None
    topic_id: Uuid | None
    partition: int
    records: memoryview | None


class ProduceRequestView(NamedTuple):
    """A parsed request. ``rows`` and ``topics`` keep the client's order, which the response repeats."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | Uuid, int]]
    """What the response repeats of each topic, and how many rows are of it."""
    rows: list[ProduceRow]


class ProduceResult(NamedTuple):
    """One partition's answer. ``leader`` is a (leader id, leader epoch) hint (KIP-951); ``record_errors``
    names the records of the batch, by index, that were refused (KIP-467).
    """

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str]] = ()


def parse_if_short(body: memoryview, position: int, version: int) -> ProduceRequestView | None:
    """Parse the body that starts at ``position`` and fills the rest of the frame, if that takes one slice
    only; None otherwise. Errors as in :func:`parse_in_slices`.
    """
    parse = _parse_flexible if version >= _FLEXIBLE_FROM else _parse_classic
    try:
        next(parse(body, position, version))
    except StopIteration as end:
        request: ProduceRequestView = end.value
        return request
    except _MALFORMED as error:
        raise _malformed(error) from None
    return None


def parse_in_slices(
    body: memoryview, position: int, version: int
) -> Generator[None, None, ProduceRequestView]:
    """As :func:`parse_if_short`; yields between slices of :data:`~.pace.SLICE_BYTES`, records not counted.

    :class:`ProtocolError` for a malformed body or more than :data:`MAX_ELEMENTS` topics and partitions.
    """
    parse = _parse_flexible if version >= _FLEXIBLE_FROM else _parse_classic
    try:
        return (yield from parse(body, position, version))
    except _MALFORMED as error:
        raise _malformed(error) from None


def _malformed(error: Exception) -> ProtocolError:
    return ProtocolError(f"malformed Produce request: {error}")


def _parse_classic(
    body: memoryview, position: int, version: int
) -> Generator[None, None, ProduceRequestView]:
    end = len(body)
    transactional_id: str | None = None
    (length,) = unpack_int16(body, position)
    if length >= 0:
        transactional_id, position = read_text(body, position)
    else:
        position += INT16_BYTES
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    position += _ACKS_TIMEOUT_BYTES
    (topic_count,) = unpack_int32(body, position)
    position += INT32_BYTES
    check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
    allowed = MAX_ELEMENTS - topic_count
    topics: list[tuple[str | Uuid, int]] = []
    rows: list[ProduceRow] = []
    pause_at = position + SLICE_BYTES
    for _ in range(topic_count):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        name, position = read_text(body, position)
        (partition_count,) = unpack_int32(body, position)
        position += INT32_BYTES
        check_count(partition_count, end - position, _MIN_PARTITION_BYTES)
        allowed -= partition_count
        if allowed < 0:
            raise _too_many()
        topics.append((name, partition_count))
        for _ in range(partition_count):
            if position >= pause_at:
                yield
                pause_at = position + SLICE_BYTES
            index, size = _INDEX_SIZE.unpack_from(body, position)
            position += _INDEX_SIZE_BYTES
            if size < 0:
                rows.append(ProduceRow(name, None, index, None))
                continue
            following = position + size
            if following > end:
                raise ProtocolError("a record set reaches past the end of the request")
            pause_at += size
            rows.append(ProduceRow(name, None, index, body[position:following]))
            position = following
    _check_end(body, position)
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics, rows)


def _parse_flexible(
    body: memoryview, position: int, version: int
) -> Generator[None, None, ProduceRequestView]:
    end = len(body)
    transactional_id, position = read_nullable_compact_text(body, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_uvarint(body, position + _ACKS_TIMEOUT_BYTES)
    check_count(count - 1, end - position, _MIN_TOPIC_BYTES)
    allowed = MAX_ELEMENTS - (count - 1)
    topics: list[tuple[str | Uuid, int]] = []
    rows: list[ProduceRow] = []
    pause_at = position + SLICE_BYTES
    for _ in range(count - 1):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        key: str | Uuid
        name: str | None = None
        topic_id: Uuid | None = None
        if version >= _TOPIC_IDS_FROM:
            key = topic_id = Uuid(bytes(body[position : position + UUID_BYTES]))
            position += UUID_BYTES
        else:
            name, position = read_compact_text(body, position)
            key = name
        partition_count, position = read_uvarint(body, position)
        check_count(partition_count - 1, end - position, _MIN_PARTITION_BYTES)
        allowed -= partition_count - 1
        if allowed < 0:
            raise _too_many()
        topics.append((key, partition_count - 1))
        for _ in range(partition_count - 1):
            if position >= pause_at:
                yield
                pause_at = position + SLICE_BYTES
            (index,) = _INDEX.unpack_from(body, position)
            size, position = read_uvarint(body, position + _INDEX_BYTES)
            records: memoryview | None = None
            if size:
                following = position + size - 1
                if following > end:
                    raise ProtocolError("a record set reaches past the end of the request")
                records = body[position:following]
                pause_at += size
                position = following
            rows.append(ProduceRow(name, topic_id, index, records))
            position = skip_tags(body, position, end)
        position = skip_tags(body, position, end)
    position = skip_tags(body, position, end)
    _check_end(body, position)
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics, rows)


def _check_end(body: memoryview, position: int) -> None:
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes after a Produce request")


def _too_many() -> ProtocolError:
    return ProtocolError(f"more than {MAX_ELEMENTS} topics and partitions in a Produce request")


def build_in_slices(
    out: bytearray,
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, int]],
    results: Sequence[ProduceResult],
    *,
    throttle_time_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> Generator[None, None, None]:
    """The whole frame, size prefix and response header included, into an empty ``out``. ``topics`` are those
    of the request; ``results`` are in the order of its rows. Yields between slices of
    :data:`RESULTS_PER_SLICE`.
    """
    out += _NO_SIZE
    out += pack_int32(correlation_id)
    write = _write_flexible if version >= _FLEXIBLE_FROM else _write_classic
    return write(out, version, topics, results, throttle_time_ms, endpoints)


def _write_classic(
    out: bytearray,
    version: int,
    topics: Sequence[tuple[str | Uuid, int]],
    results: Sequence[ProduceResult],
    throttle_time_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> Generator[None, None, None]:
    out += pack_int32(len(topics))
    left, end = RESULTS_PER_SLICE, 0
    for name, count in topics:
        if left <= 0:
            yield
            left = RESULTS_PER_SLICE
        left -= 1
        raw = name.encode() if isinstance(name, str) else name
        out += pack_int16(len(raw))
        out += raw
        out += pack_int32(count)
        position, end = end, end + count
        for result in results[position:end]:
            if left <= 0:
                yield
                left = RESULTS_PER_SLICE
            index, error_code, base_offset, append_time, log_start, message, _, record_errors = result
            left -= 1 + len(record_errors)
            if version >= _LOG_START_FROM:
                out += _RESULT_V5.pack(index, error_code, base_offset, append_time, log_start)
                if version >= _MESSAGES_FROM:
                    out += pack_int32(len(record_errors))
                    for record_index, record_message in record_errors:
                        out += pack_int32(record_index)
                        write_text(out, record_message)
                    write_text(out, message)
            else:
                out += _RESULT_V3.pack(index, error_code, base_offset, append_time)
    out += pack_int32(throttle_time_ms)
    pack_int32_into(out, 0, len(out) - SIZE_BYTES)


def _write_flexible(
    out: bytearray,
    version: int,
    topics: Sequence[tuple[str | Uuid, int]],
    results: Sequence[ProduceResult],
    throttle_time_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> Generator[None, None, None]:
    out.append(0)  # no tagged fields in the response header
    write_uvarint(out, len(topics) + 1)
    left, end = RESULTS_PER_SLICE, 0
    for topic, count in topics:
        if left <= 0:
            yield
            left = RESULTS_PER_SLICE
        left -= 1
        if isinstance(topic, str):
            raw = topic.encode()
            write_uvarint(out, len(raw) + 1)
            out += raw
        else:
            out += topic
        write_uvarint(out, count + 1)
        position, end = end, end + count
        for result in results[position:end]:
            if left <= 0:
                yield
                left = RESULTS_PER_SLICE
            index, error_code, base_offset, append_time, log_start, message, leader, record_errors = result
            left -= 1 + len(record_errors)
            out += _RESULT_V5.pack(index, error_code, base_offset, append_time, log_start)
            write_uvarint(out, len(record_errors) + 1)
            for record_index, record_message in record_errors:
                out += pack_int32(record_index)
                write_compact_text(out, record_message)
                out.append(0)
            write_compact_text(out, message)
            if leader is not None and version >= _LEADERS_FROM:
                out.append(1)
                out += _LEADER.encode(*leader)
            else:
                out.append(0)
        out.append(0)
    out += pack_int32(throttle_time_ms)
    if endpoints and version >= _LEADERS_FROM:
        write_node_endpoints(out, endpoints)
    else:
        out.append(0)
    pack_int32_into(out, 0, len(out) - SIZE_BYTES)
