"""Hand-written encoder of Fetch responses, version 4 to 18, as chunks; long ones in slices, by the same code.

A response is a list of chunks: memory for the fields and, for the records, the file ranges that the log
returned; records are never copied here. Checked in tests against the table-driven messages for every version.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.hot.wire import (
    NodeEndpoint,
    TaggedStruct,
    layout,
    pack_int16,
    pack_int32,
    pack_int32_into,
    since,
    write_count,
    write_node_endpoints,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import write_uvarint
from pykraft.runtime.network.file_slices import FileSlice
from pykraft.runtime.network.streams import Chunk

_FLEXIBLE_FROM = tables.FetchRequest.FLEXIBLE_FROM
_SESSIONS_FROM = since(tables.FetchRequest, "session_id")
OWN_ERROR_FROM = since(tables.FetchResponse, "error_code")
_RESULTS_PER_SLICE = 500
_RESPONSE_HEAD_V7 = layout(tables.FetchResponse, "throttle_time_ms", _SESSIONS_FROM)
_RESULT_LOG_START_FROM = since(tables.PartitionData, "log_start_offset")
_PREFERRED_FROM = since(tables.PartitionData, "preferred_read_replica")
_ENDPOINTS_FROM = since(tables.FetchResponse, "node_endpoints")
_RESULT_V4 = layout(tables.PartitionData, "partition_index", tables.FetchResponse.MIN_VERSION)
_RESULT_V5 = layout(tables.PartitionData, "partition_index", _RESULT_LOG_START_FROM)
_ABORTED = layout(tables.AbortedTransaction, "producer_id", tables.FetchResponse.MIN_VERSION)
_DIVERGING = TaggedStruct(tables.PartitionData, "diverging_epoch", "epoch")
_LEADER = TaggedStruct(tables.PartitionData, "current_leader", "leader_id")


class FetchResult(NamedTuple):
    """One partition's answer. ``records`` is None where there are none.

    ``diverging`` is the (epoch, end offset) by which a follower truncates; ``leader`` is a hint (KIP-951).
    ``aborted``: (producer id, first offset) of the aborted transactions, for readers of committed ones only.
    """

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: FileSlice | bytes | None = None
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None


def build_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, Sequence[FetchResult]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    """The whole frame as chunks, size prefix and response header included."""
    return at_once(
        build_in_slices(
            version,
            correlation_id,
            topics,
            error_code=error_code,
            session_id=session_id,
            throttle_time_ms=throttle_time_ms,
            endpoints=endpoints,
        )
    )


def build_in_slices(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, Sequence[FetchResult]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> Generator[None, None, list[Chunk]]:
    """As :func:`build_fetch_response`; yields after each slice."""
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(SIZE_BYTES)
    first = out
    chunks: list[Chunk] = [out]
    total = 0
    out += pack_int32(correlation_id)
    if flexible:
        out.append(0)
    if version >= _SESSIONS_FROM:
        out += _RESPONSE_HEAD_V7.pack(throttle_time_ms, error_code, session_id)
    else:
        out += pack_int32(throttle_time_ms)
    write_count(out, len(topics), flexible)
    until_pause = _RESULTS_PER_SLICE
    no_aborted = b"\0" if flexible else b"\xff\xff\xff\xff"
    for topic, results in topics:
        if isinstance(topic, str):
            raw = topic.encode()
            if flexible:
                write_uvarint(out, len(raw) + 1)
            else:
                out += pack_int16(len(raw))
            out += raw
        else:
            out += topic
        if flexible and len(results) < 127:
            out.append(len(results) + 1)
        else:
            write_count(out, len(results), flexible)
        until_pause -= 1
        for result in results:
            until_pause -= 1
            if until_pause <= 0:
                yield
                until_pause = _RESULTS_PER_SLICE
            index, code, high_watermark, log_start, records, diverging, leader, preferred, stable, aborted = (
                result
            )
            if version >= _RESULT_LOG_START_FROM:
                out += _RESULT_V5.pack(index, code, high_watermark, stable, log_start)
            else:
                out += _RESULT_V4.pack(index, code, high_watermark, stable)
            if aborted is None:
                out += no_aborted
            else:
                _write_aborted(out, aborted, flexible)
            if version >= _PREFERRED_FROM:
                out += pack_int32(preferred)
            size = 0
            if records is not None:
                size = len(records) if isinstance(records, bytes) else records.size_bytes
            if not flexible:
                out += pack_int32(size)
            elif size:
                write_uvarint(out, size + 1)
            else:
                out.append(1)
            if size:
                assert records is not None
                total += len(out) + size
                chunks.append(records)
                out = bytearray()
                chunks.append(out)
            if flexible:
                if diverging is None and leader is None:
                    out.append(0)
                else:
                    _write_partition_tags(out, diverging, leader)
        if flexible:
            out.append(0)
    if flexible:
        if endpoints and version >= _ENDPOINTS_FROM:
            write_node_endpoints(out, endpoints)
        else:
            out.append(0)
    total += len(out)
    if not out:
        chunks.pop()
    pack_int32_into(first, 0, total - SIZE_BYTES)
    return chunks


def _write_aborted(out: bytearray, aborted: Sequence[tuple[int, int]], flexible: bool) -> None:
    write_count(out, len(aborted), flexible)
    for transaction in aborted:
        out += _ABORTED.pack(*transaction)
        if flexible:
            out.append(0)


def _write_partition_tags(
    out: bytearray, diverging: tuple[int, int] | None, leader: tuple[int, int] | None
) -> None:
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING.encode(*diverging)
    if leader is not None:
        out += _LEADER.encode(*leader)
