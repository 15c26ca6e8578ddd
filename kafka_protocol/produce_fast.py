"""Produce by hand: requests of version 3 to 13 parsed in place, responses written in one go.

Record sets stay views into the frame, so they are valid (and writable) only while the frame is. Checked in
tests against the table-driven messages for every version. Decides nothing about records; bodies that are not
what they must be raise :class:`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint
from pykraft.kafka_protocol.tagged import skip_tagged_fields

MIN_VERSION = 3
MAX_VERSION = 13
_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 13
_MIN_TOPIC_BYTES = 3
_MIN_PARTITION_BYTES = 5

MAX_ELEMENTS = 100_000
"""Topics and partitions of a request, together: each becomes objects, which take some sixty times as much."""

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS_TIMEOUT = Struct(">hi")
_TWO_I32 = Struct(">ii")
_RESULT_V3 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_LEADER_TAG = Struct(">BBiiB")  # one tagged field: tag 0, nine bytes: leader id, leader epoch, no tags


class ProducePartition(NamedTuple):
    """One partition's record set; ``records`` is None where the client sent null."""

    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """``name`` up to version 12, ``topic_id`` from version 13; the other is None."""

    name: str | None
    topic_id: Uuid | None
    partitions: list[ProducePartition]


class ProduceRequestView(NamedTuple):
    """A parsed request. ``topics`` keeps the client's order, which the response repeats."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProduceResult(NamedTuple):
    """One partition's answer. ``leader`` is a (leader id, leader epoch) hint (KIP-951); ``record_errors``
    says which records of the batch (by index) were the reason (KIP-467)."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str]] = ()


class NodeEndpoint(NamedTuple):
    """Where a hinted leader is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def parse_produce_request(body: memoryview, position: int, version: int) -> ProduceRequestView:
    """Parse the body that starts at ``position`` and fills the rest of the frame.

    :class:`ProtocolError` for more than :data:`MAX_ELEMENTS` topics and partitions, too.
    """
    try:
        if version >= _FLEXIBLE_FROM:
            request, position = _parse_flexible(body, position, version)
        else:
            request, position = _parse_classic(body, position)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed Produce request: {error}") from None
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes after a Produce request")
    return request


def _parse_classic(body: memoryview, position: int) -> tuple[ProduceRequestView, int]:
    end = len(body)
    transactional_id: str | None = None
    (length,) = _I16.unpack_from(body, position)
    position += 2
    if length >= 0:
        transactional_id = _text(body, position, position + length)
        position += length
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    (topic_count,) = _I32.unpack_from(body, position + 6)
    position += 10
    allowed = _check_count(topic_count, end - position, _MIN_TOPIC_BYTES, MAX_ELEMENTS)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        (length,) = _I16.unpack_from(body, position)
        position += 2
        name = _text(body, position, position + length)
        position += length
        (partition_count,) = _I32.unpack_from(body, position)
        position += 4
        allowed = _check_count(partition_count, end - position, _MIN_PARTITION_BYTES, allowed)
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            index, size = _TWO_I32.unpack_from(body, position)
            position += 8
            if size < 0:
                partitions.append(ProducePartition(index, None))
                continue
            following = position + size
            if following > end:
                raise ProtocolError("a record set reaches past the end of the request")
            partitions.append(ProducePartition(index, body[position:following]))
            position = following
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics), position


def _parse_flexible(body: memoryview, position: int, version: int) -> tuple[ProduceRequestView, int]:
    end = len(body)
    transactional_id: str | None = None
    length, position = read_uvarint(body, position)
    if length:
        transactional_id = _text(body, position, position + length - 1)
        position += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_uvarint(body, position + 6)
    allowed = _check_count(count - 1, end - position, _MIN_TOPIC_BYTES, MAX_ELEMENTS)
    topics: list[ProduceTopic] = []
    for _ in range(count - 1):
        name: str | None = None
        topic_id: Uuid | None = None
        if version >= _TOPIC_IDS_FROM:
            topic_id = Uuid(bytes(body[position : position + 16]))
            position += 16
        else:
            length, position = read_uvarint(body, position)
            name = _text(body, position, position + length - 1)
            position += length - 1
        partition_count, position = read_uvarint(body, position)
        allowed = _check_count(partition_count - 1, end - position, _MIN_PARTITION_BYTES, allowed)
        partitions: list[ProducePartition] = []
        for _ in range(partition_count - 1):
            (index,) = _I32.unpack_from(body, position)
            size, position = read_uvarint(body, position + 4)
            records: memoryview | None = None
            if size:
                following = position + size - 1
                if following > end:
                    raise ProtocolError("a record set reaches past the end of the request")
                records = body[position:following]
                position = following
            partitions.append(ProducePartition(index, records))
            position = _skip_tags(body, position, end)
        topics.append(ProduceTopic(name, topic_id, partitions))
        position = _skip_tags(body, position, end)
    position = _skip_tags(body, position, end)
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics), position


def _text(body: memoryview, start: int, stop: int) -> str:
    if stop < start or stop > len(body):
        raise ProtocolError("a string reaches past the end of the request")
    return str(body[start:stop], "utf-8")


def _skip_tags(body: memoryview, position: int, end: int) -> int:
    return position + 1 if body[position] == 0 else skip_tagged_fields(body, position, end)


def _check_count(count: int, left_bytes: int, min_bytes: int, allowed: int) -> int:
    """Refuse an array that cannot be, or is too long; returns how many elements may come after it."""
    if count < 0 or count * min_bytes > left_bytes:
        raise ProtocolError(f"an array of {count} elements in {left_bytes} bytes")
    if count > allowed:
        raise ProtocolError(f"more than {MAX_ELEMENTS} topics and partitions in a Produce request")
    return allowed - count


def build_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, Sequence[ProduceResult]]],
    *,
    throttle_time_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytearray:
    """The whole frame, size prefix and response header included."""
    out = bytearray(4)
    out += _I32.pack(correlation_id)
    if version >= _FLEXIBLE_FROM:
        _write_flexible(out, version, topics, throttle_time_ms, endpoints)
    else:
        _write_classic(out, version, topics, throttle_time_ms)
    _I32.pack_into(out, 0, len(out) - 4)
    return out


def _write_classic(
    out: bytearray,
    version: int,
    topics: Sequence[tuple[str | Uuid, Sequence[ProduceResult]]],
    throttle_time_ms: int,
) -> None:
    out += _I32.pack(len(topics))
    for name, results in topics:
        raw = name.encode() if isinstance(name, str) else name
        out += _I16.pack(len(raw))
        out += raw
        out += _I32.pack(len(results))
        for result in results:
            index, error_code, base_offset, append_time, log_start, message, _, record_errors = result
            if version >= 5:
                out += _RESULT_V5.pack(index, error_code, base_offset, append_time, log_start)
                if version >= 8:
                    out += _I32.pack(len(record_errors))
                    for record_index, record_message in record_errors:
                        out += _I32.pack(record_index)
                        _write_classic_text(out, record_message)
                    _write_classic_text(out, message)
            else:
                out += _RESULT_V3.pack(index, error_code, base_offset, append_time)
    out += _I32.pack(throttle_time_ms)


def _write_flexible(
    out: bytearray,
    version: int,
    topics: Sequence[tuple[str | Uuid, Sequence[ProduceResult]]],
    throttle_time_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> None:
    out.append(0)  # no tagged fields in the response header
    write_uvarint(out, len(topics) + 1)
    for topic, results in topics:
        if isinstance(topic, str):
            raw = topic.encode()
            write_uvarint(out, len(raw) + 1)
            out += raw
        else:
            out += topic
        write_uvarint(out, len(results) + 1)
        for result in results:
            index, error_code, base_offset, append_time, log_start, message, leader, record_errors = result
            out += _RESULT_V5.pack(index, error_code, base_offset, append_time, log_start)
            write_uvarint(out, len(record_errors) + 1)
            for record_index, record_message in record_errors:
                out += _I32.pack(record_index)
                _write_compact_text(out, record_message)
                out.append(0)
            _write_compact_text(out, message)
            if leader is not None and version >= 10:
                out.append(1)
                out += _LEADER_TAG.pack(0, 9, *leader, 0)
            else:
                out.append(0)
        out.append(0)
    out += _I32.pack(throttle_time_ms)
    if endpoints and version >= 10:
        write_node_endpoints(out, endpoints)
    else:
        out.append(0)


def _write_classic_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
        return
    raw = text.encode()
    out += _I16.pack(len(raw))
    out += raw


def _write_compact_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    raw = text.encode()
    write_uvarint(out, len(raw) + 1)
    out += raw


def write_node_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """A tagged section with one field, tag 0: the endpoints of hinted leaders (KIP-951)."""
    field = bytearray()
    write_uvarint(field, len(endpoints) + 1)
    for node in endpoints:
        host = node.host.encode()
        field += _I32.pack(node.node_id)
        write_uvarint(field, len(host) + 1)
        field += host
        field += _I32.pack(node.port)
        if node.rack is None:
            field.append(0)
        else:
            rack = node.rack.encode()
            write_uvarint(field, len(rack) + 1)
            field += rack
        field.append(0)
    out.append(1)
    out.append(0)
    write_uvarint(out, len(field))
    out += field
