"""The follower's side of Fetch, by hand: version 17, without a session, responses parsed in place.

Version 17 names topics by id and carries the broker epoch, by which a leader refuses what a previous
incarnation sent. Record sets are views into the response frame and valid only while it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from pykraft.kafka_protocol.fetch_fast import FetchPartition
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, write_uvarint
from pykraft.kafka_protocol.tagged import read_tag, read_tag_count, skip_tagged_fields

FOLLOWER_FETCH_VERSION = 17
_API_KEY_FETCH = 1

_HEADER = Struct(">hhi")
_I16 = Struct(">h")
_HEAD = Struct(">iiibii")
_PARTITION = Struct(">iiqiqi")
_REPLICA_STATE_TAG = Struct(">BBBiqB")  # one field: tag 1, 13 bytes: id, epoch, no tags
_I32 = Struct(">i")
_THROTTLE_ERROR_SESSION = Struct(">ihi")
_RESULT = Struct(">ihqqq")
_DIVERGING = Struct(">iq")
_LEADER = Struct(">ii")


class FollowerResult(NamedTuple):
    """One partition of a response to a follower. ``records`` is empty where there are none."""

    topic_id: Uuid
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None
    records: memoryview


class FollowerResponse(NamedTuple):
    correlation_id: int
    error_code: int
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
) -> bytearray:
    """A whole request frame, size prefix included."""
    name = client_id.encode()
    out = bytearray(4)
    out += _HEADER.pack(_API_KEY_FETCH, FOLLOWER_FETCH_VERSION, correlation_id)
    out += _I16.pack(len(name))
    out += name
    out.append(0)
    out += _HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, 0, -1)
    write_uvarint(out, len(topics) + 1)
    for topic_id, partitions in topics:
        out += topic_id
        write_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += _PARTITION.pack(*partition)
            out.append(0)
        out.append(0)
    out += b"\x01\x01"  # no forgotten topics, empty rack id
    out += _REPLICA_STATE_TAG.pack(1, 1, 13, replica_id, replica_epoch, 0)
    _I32.pack_into(out, 0, len(out) - 4)
    return out


def parse_follower_response(frame: memoryview) -> FollowerResponse:
    """Parse a response frame (without its size prefix)."""
    try:
        return _parse(frame)
    except (struct_error, IndexError) as error:
        raise ProtocolError(f"malformed Fetch response: {error}") from None


def _parse(frame: memoryview) -> FollowerResponse:
    end = len(frame)
    (correlation_id,) = _I32.unpack_from(frame, 0)
    position = skip_tagged_fields(frame, 4, end)
    _, error_code, _ = _THROTTLE_ERROR_SESSION.unpack_from(frame, position)
    topic_count, position = read_uvarint(frame, position + 10)
    results: list[FollowerResult] = []
    for _ in range(topic_count - 1):
        topic_id = Uuid(bytes(frame[position : position + 16]))
        partition_count, position = read_uvarint(frame, position + 16)
        for _ in range(partition_count - 1):
            result, position = _parse_partition(frame, position, end, topic_id)
            results.append(result)
        position = skip_tagged_fields(frame, position, end)
    return FollowerResponse(correlation_id, error_code, results)


def _parse_partition(
    frame: memoryview, position: int, end: int, topic_id: Uuid
) -> tuple[FollowerResult, int]:
    index, error_code, high_watermark, _, log_start = _RESULT.unpack_from(frame, position)
    aborted, position = read_uvarint(frame, position + 30)
    for _ in range(aborted - 1):
        position = skip_tagged_fields(frame, position + 16, end)
    size, position = read_uvarint(frame, position + 4)  # behind the preferred read replica
    following = position + max(0, size - 1)
    if following > end:
        raise ProtocolError("a record set reaches past the end of the response")
    records = frame[position:following]
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    tags, position = read_tag_count(frame, following, end)
    for _ in range(tags):
        tag, start, position = read_tag(frame, position, end)
        if tag == 0:
            diverging = _DIVERGING.unpack_from(frame, start)
        elif tag == 1:
            leader = _LEADER.unpack_from(frame, start)
    return (
        FollowerResult(topic_id, index, error_code, high_watermark, log_start, diverging, leader, records),
        position,
    )
