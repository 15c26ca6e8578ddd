"""Fetch by hand, as a server: requests of version 4 to 18 parsed in place, responses built as chunks.

A response is a list of chunks: memory for the fields and, for the records, whatever file ranges the log gave;
nothing of a log is ever copied here. The follower's side is in :mod:`pykraft.kafka_protocol.fetch_follower`.
Checked in tests against the table-driven messages for every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint
from pykraft.kafka_protocol.produce_fast import NodeEndpoint, write_node_endpoints
from pykraft.kafka_protocol.tagged import read_tag, read_tag_count, skip_tagged_fields
from pykraft.runtime.streams import Chunk, FileSlice

MIN_VERSION = 4
MAX_VERSION = 18
_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13
_MIN_TOPIC_BYTES = 3

_I16 = Struct(">h")
_I32 = Struct(">i")
_REPLICA_STATE = Struct(">iq")
_HEAD = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION = Struct(">ii")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")

_THROTTLE_ERROR_SESSION = Struct(">ihi")
_RESULT_V4 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_DIVERGING = Struct(">BBiqB")  # tag 0, 13 bytes: epoch, end offset, no tags
_LEADER = Struct(">BBiiB")  # tag 1, 9 bytes: leader id, leader epoch, no tags


class FetchPartition(NamedTuple):
    """What is asked of one partition. Absent fields keep the protocol's defaults."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """``name`` up to version 12, ``topic_id`` from version 13; the other is None."""

    name: str | None
    topic_id: Uuid | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave a fetch session."""

    name: str | None
    topic_id: Uuid | None
    partitions: list[int]


class FetchRequestView(NamedTuple):
    """A parsed request. ``replica_id`` is -1 for consumers; ``replica_epoch`` -1 if none was sent."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str
    cluster_id: str | None


class FetchResult(NamedTuple):
    """One partition's answer. ``records`` is None where there are none.

    ``diverging`` is (epoch, end offset) for a follower to truncate by; ``leader`` a hint (KIP-951).
    """

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: FileSlice | bytes | None = None
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred_read_replica: int = -1


def parse_fetch_request(body: memoryview, position: int, version: int) -> FetchRequestView:
    """Parse the body that starts at ``position`` and fills the rest of the frame."""
    try:
        if version >= _FLEXIBLE_FROM:
            request, position = _parse_flexible(body, position, version)
        else:
            request, position = _parse_classic(body, position, version)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed Fetch request: {error}") from None
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes after a Fetch request")
    return request


def _parse_classic(body: memoryview, position: int, version: int) -> tuple[FetchRequestView, int]:
    end = len(body)
    (replica_id,) = _I32.unpack_from(body, position)
    max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(body, position + 4)
    position += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += 8
    partition_struct = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    (topic_count,) = _I32.unpack_from(body, position)
    position += 4
    _check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, position = _classic_text(body, position)
        (count,) = _I32.unpack_from(body, position)
        position += 4
        _check_count(count, end - position, partition_struct.size)
        partitions: list[FetchPartition] = []
        for _ in range(count):
            fields = partition_struct.unpack_from(body, position)
            position += partition_struct.size
            if version >= 9:
                index, leader_epoch, offset, log_start, limit = fields
            elif version >= 5:
                index, offset, log_start, limit = fields
                leader_epoch = -1
            else:
                index, offset, limit = fields
                leader_epoch = log_start = -1
            partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start, limit))
        topics.append(FetchTopic(name, None, partitions))
    forgotten: list[ForgottenTopic] = []
    rack_id = ""
    if version >= 7:
        (topic_count,) = _I32.unpack_from(body, position)
        position += 4
        _check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
        for _ in range(topic_count):
            name, position = _classic_text(body, position)
            (count,) = _I32.unpack_from(body, position)
            position += 4
            _check_count(count, end - position, 4)
            forgotten.append(ForgottenTopic(name, None, _int_array(body, position, count)))
            position += 4 * count
    if version >= 11:
        rack_id, position = _classic_text(body, position)
    return (
        FetchRequestView(
            replica_id,
            -1,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
            None,
        ),
        position,
    )


def _parse_flexible(body: memoryview, position: int, version: int) -> tuple[FetchRequestView, int]:
    end = len(body)
    replica_id = -1
    if version < 15:
        (replica_id,) = _I32.unpack_from(body, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(body, position)
    session_id, session_epoch = _SESSION.unpack_from(body, position + 13)
    topic_count, position = read_uvarint(body, position + 21)
    _check_count(topic_count - 1, end - position, _MIN_TOPIC_BYTES)
    topics: list[FetchTopic] = []
    unpack = _PARTITION_V12.unpack_from
    for _ in range(topic_count - 1):
        name, topic_id, position = _topic_key(body, position, version)
        count, position = read_uvarint(body, position)
        _check_count(count - 1, end - position, _PARTITION_V12.size + 1)
        partitions: list[FetchPartition] = []
        for _ in range(count - 1):
            partitions.append(FetchPartition(*unpack(body, position)))
            position = _skip_tags(body, position + 32, end)
        topics.append(FetchTopic(name, topic_id, partitions))
        position = _skip_tags(body, position, end)
    topic_count, position = read_uvarint(body, position)
    _check_count(topic_count - 1, end - position, _MIN_TOPIC_BYTES)
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count - 1):
        name, topic_id, position = _topic_key(body, position, version)
        count, position = read_uvarint(body, position)
        _check_count(count - 1, end - position, 4)
        forgotten.append(ForgottenTopic(name, topic_id, _int_array(body, position, count - 1)))
        position = _skip_tags(body, position + 4 * (count - 1), end)
    rack_id, position = _compact_text(body, position)
    replica_epoch = -1
    cluster_id: str | None = None
    if body[position] == 0:
        position += 1
    else:
        count, position = read_tag_count(body, position, end)
        for _ in range(count):
            tag, start, position = read_tag(body, position, end)
            if tag == 0:
                length, start = read_uvarint(body, start)
                cluster_id = str(body[start : start + length - 1], "utf-8") if length else None
            elif tag == 1 and version >= 15:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(body, start)
    return (
        FetchRequestView(
            replica_id,
            replica_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
            cluster_id,
        ),
        position,
    )


def _topic_key(body: memoryview, position: int, version: int) -> tuple[str | None, Uuid | None, int]:
    if version >= _TOPIC_IDS_FROM:
        if position + 16 > len(body):
            raise ProtocolError("a topic id reaches past the end of the request")
        return None, Uuid(bytes(body[position : position + 16])), position + 16
    name, position = _compact_text(body, position)
    return name, None, position


def _classic_text(body: memoryview, position: int) -> tuple[str, int]:
    (length,) = _I16.unpack_from(body, position)
    return _text(body, position + 2, position + 2 + length)


def _compact_text(body: memoryview, position: int) -> tuple[str, int]:
    length, position = read_uvarint(body, position)
    return _text(body, position, position + length - 1)


def _text(body: memoryview, start: int, stop: int) -> tuple[str, int]:
    if stop < start or stop > len(body):
        raise ProtocolError("a string reaches past the end of the request")
    return str(body[start:stop], "utf-8"), stop


def _int_array(body: memoryview, position: int, count: int) -> list[int]:
    return list(Struct(f">{count}i").unpack_from(body, position))


def _skip_tags(body: memoryview, position: int, end: int) -> int:
    return position + 1 if body[position] == 0 else skip_tagged_fields(body, position, end)


def _check_count(count: int, left_bytes: int, min_bytes: int) -> None:
    if count < 0 or count * min_bytes > left_bytes:
        raise ProtocolError(f"an array of {count} elements in {left_bytes} bytes")


def build_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, Sequence[FetchResult]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    read_committed: bool = False,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    """The whole frame as chunks, size prefix and response header included."""
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(4)
    first = out
    chunks: list[Chunk] = [out]
    total = 0
    out += _I32.pack(correlation_id)
    if flexible:
        out.append(0)
    if version >= 7:
        out += _THROTTLE_ERROR_SESSION.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _I32.pack(throttle_time_ms)
    _write_count(out, len(topics), flexible)
    # No transactions: null for read_uncommitted, an empty list of aborted ones for read_committed.
    aborted = _ABORTED[flexible][read_committed]
    for topic, results in topics:
        if isinstance(topic, str):
            raw = topic.encode()
            if flexible:
                write_uvarint(out, len(raw) + 1)
            else:
                out += _I16.pack(len(raw))
            out += raw
        else:
            out += topic
        _write_count(out, len(results), flexible)
        for result in results:
            index, code, high_watermark, log_start, records, diverging, leader, preferred = result
            if version >= 5:
                out += _RESULT_V5.pack(index, code, high_watermark, high_watermark, log_start)
            else:
                out += _RESULT_V4.pack(index, code, high_watermark, high_watermark)
            out += aborted
            if version >= 11:
                out += _I32.pack(preferred)
            size = 0
            if records is not None:
                size = len(records) if isinstance(records, bytes) else records.size_bytes
            if flexible:
                write_uvarint(out, size + 1)
            else:
                out += _I32.pack(size)
            if size:
                assert records is not None
                total += len(out) + size
                chunks.append(records)
                out = bytearray()
                chunks.append(out)
            if flexible:
                _write_partition_tags(out, diverging, leader)
        if flexible:
            out.append(0)
    if flexible:
        if endpoints and version >= 16:
            write_node_endpoints(out, endpoints)
        else:
            out.append(0)
    total += len(out)
    if not out:
        chunks.pop()
    _I32.pack_into(first, 0, total - 4)
    return chunks


_ABORTED = {False: {False: b"\xff\xff\xff\xff", True: b"\0\0\0\0"}, True: {False: b"\0", True: b"\x01"}}


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _I32.pack(count)


def _write_partition_tags(
    out: bytearray, diverging: tuple[int, int] | None, leader: tuple[int, int] | None
) -> None:
    if diverging is None and leader is None:
        out.append(0)
        return
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING.pack(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER.pack(1, 9, *leader, 0)
