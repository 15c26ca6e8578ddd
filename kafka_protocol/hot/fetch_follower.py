"""Hand-written Fetch codec of the follower: version 17, responses parsed in place.

Version 17 names topics by id and carries the broker epoch, by which a leader refuses the requests of a
previous incarnation. Record sets are views into the response frame and valid only as long as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import error as struct_error

from pykraft.kafka_protocol.codec.tagged import read_tag, read_tag_count, skip_tagged_fields
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.headers import CORRELATION_ID, REQUEST_HEADER
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition
from pykraft.kafka_protocol.hot.wire import UUID_BYTES, TaggedStruct, layout, pack_int32, pack_int32_into
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint
from pykraft.lazy_dataclass import dataclass

FOLLOWER_FETCH_VERSION = 17

_pack_header = REQUEST_HEADER.pack
_HEAD = layout(tables.FetchRequest, "max_wait_ms", FOLLOWER_FETCH_VERSION)
_PARTITION = layout(tables.FetchPartition, "partition", FOLLOWER_FETCH_VERSION)
_NO_RACK = b"\x01"
_REPLICA_STATE = TaggedStruct(tables.FetchRequest, "replica_state", "replica_id")
_RESPONSE_HEAD = layout(tables.FetchResponse, "throttle_time_ms", FOLLOWER_FETCH_VERSION)
_RESULT = layout(tables.PartitionData, "partition_index", FOLLOWER_FETCH_VERSION)
_ABORTED = layout(tables.AbortedTransaction, "producer_id", FOLLOWER_FETCH_VERSION)
_PREFERRED = layout(tables.PartitionData, "preferred_read_replica", FOLLOWER_FETCH_VERSION)
_RESULT_BYTES, _PREFERRED_BYTES = _RESULT.size, _PREFERRED.size
_DIVERGING = TaggedStruct(tables.PartitionData, "diverging_epoch", "epoch")
_LEADER = TaggedStruct(tables.PartitionData, "current_leader", "leader_id")


@dataclass(slots=True)
class FollowerResult:
    """One partition of a response to a follower. ``records`` is empty where there are none."""

    topic_id: Uuid
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None
    records: memoryview


@dataclass(slots=True)
class FollowerResponse:
    correlation_id: int
    error_code: int
    session_id: int
    results: list[FollowerResult]


def build_follower_fetch(
    correlation_id: int,
    client_id: str,
    *,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    topics: Sequence[tuple[Uuid, Sequence[FetchPartition]]],
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[Uuid, Sequence[int]]] = (),
) -> bytearray:
    """A whole request frame, size prefix included. The defaults are those of a request without a session."""
    name = client_id.encode()
    out = bytearray(SIZE_BYTES)
    out += _pack_header(tables.FetchRequest.API_KEY, FOLLOWER_FETCH_VERSION, correlation_id, len(name))
    out += name
    out.append(0)
    out += _HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch)
    write_uvarint(out, len(topics) + 1)
    for topic_id, partitions in topics:
        out += topic_id
        write_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += _PARTITION.pack(
                partition.partition,
                partition.current_leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                partition.log_start_offset,
                partition.max_bytes,
            )
            out.append(0)
        out.append(0)
    write_uvarint(out, len(forgotten) + 1)
    for topic_id, indexes in forgotten:
        out += topic_id
        write_uvarint(out, len(indexes) + 1)
        for index in indexes:
            out += pack_int32(index)
        out.append(0)
    out += _NO_RACK
    out.append(1)
    out += _REPLICA_STATE.encode(replica_id, replica_epoch)
    pack_int32_into(out, 0, len(out) - SIZE_BYTES)
    return out


def parse_follower_response(frame: memoryview) -> FollowerResponse:
    """Parse a response frame (without its size prefix)."""
    try:
        return _parse(frame)
    except (struct_error, IndexError) as error:
        raise ProtocolError(f"malformed Fetch response: {error}") from None


def _parse(frame: memoryview) -> FollowerResponse:
    end = len(frame)
    (correlation_id,) = CORRELATION_ID.unpack_from(frame, 0)
    position = skip_tagged_fields(frame, CORRELATION_ID.size, end)
    _, error_code, session_id = _RESPONSE_HEAD.unpack_from(frame, position)
    topic_count, position = read_uvarint(frame, position + _RESPONSE_HEAD.size)
    results: list[FollowerResult] = []
    for _ in range(topic_count - 1):
        topic_id = Uuid(bytes(frame[position : position + UUID_BYTES]))
        partition_count, position = read_uvarint(frame, position + UUID_BYTES)
        for _ in range(partition_count - 1):
            result, position = _parse_partition(frame, position, end, topic_id)
            results.append(result)
        position = skip_tagged_fields(frame, position, end)
    return FollowerResponse(correlation_id, error_code, session_id, results)


def _parse_partition(
    frame: memoryview, position: int, end: int, topic_id: Uuid
) -> tuple[FollowerResult, int]:
    index, error_code, high_watermark, _, log_start = _RESULT.unpack_from(frame, position)
    aborted, position = read_uvarint(frame, position + _RESULT_BYTES)
    for _ in range(aborted - 1):
        position = skip_tagged_fields(frame, position + _ABORTED.size, end)
    size, position = read_uvarint(frame, position + _PREFERRED_BYTES)
    following = position + max(0, size - 1)
    if following > end:
        raise ProtocolError("a record set reaches past the end of the response")
    records = frame[position:following]
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    tags, position = read_tag_count(frame, following, end)
    for _ in range(tags):
        tag, start, position = read_tag(frame, position, end)
        if tag == _DIVERGING.tag:
            diverging = _DIVERGING.layout.unpack_from(frame, start)
        elif tag == _LEADER.tag:
            leader = _LEADER.layout.unpack_from(frame, start)
    return (
        FollowerResult(topic_id, index, error_code, high_watermark, log_start, diverging, leader, records),
        position,
    )
