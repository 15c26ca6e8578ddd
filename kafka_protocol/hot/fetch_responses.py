"""Hand-written encoder of Fetch responses, version 4 to 18, as chunks; long ones in slices, by the same code.

A response is a list of chunks: memory for the fields and, for the records, the file ranges that the log
returned; records are never copied here. Checked in tests against the table-driven messages for every version.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.hot.wire import (
    NodeEndpoint,
    TaggedStruct,
    layout,
    pack_int32,
    pack_int32_into,
    since,
    write_compact_text,
    write_count,
    write_node_endpoints,
    write_text,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import write_uvarint
from pykraft.lazy_dataclass import dataclass
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


@dataclass(slots=True)
class FetchResult:
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
    writer = _Writer(version, correlation_id, topics, error_code, session_id, throttle_time_ms, endpoints)
    while (chunks := writer.advance()) is None:
        pass
    return chunks


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
    """As :func:`build_fetch_response`; yields between slices."""
    writer = _Writer(version, correlation_id, topics, error_code, session_id, throttle_time_ms, endpoints)
    while (chunks := writer.advance()) is None:
        yield
    return chunks


class _Writer:
    """How far the answer of one request is written."""

    __slots__ = (
        "_chunks",
        "_endpoints",
        "_flexible",
        "_left",
        "_out",
        "_results",
        "_topic",
        "_topics",
        "_total",
        "_version",
    )

    def __init__(
        self,
        version: int,
        correlation_id: int,
        topics: Sequence[tuple[str | Uuid, Sequence[FetchResult]]],
        error_code: int,
        session_id: int,
        throttle_time_ms: int,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM
        self._topics = topics
        self._endpoints = endpoints
        self._topic = 0
        self._results: Sequence[FetchResult] = ()
        """The results of the topic that is being written."""
        self._left = 0
        self._total = 0
        """Bytes of the chunks that are complete."""
        self._out = out = bytearray(SIZE_BYTES)
        self._chunks: list[Chunk] = [out]
        out += pack_int32(correlation_id)
        if self._flexible:
            out.append(0)
        if version >= _SESSIONS_FROM:
            out += _RESPONSE_HEAD_V7.pack(throttle_time_ms, error_code, session_id)
        else:
            out += pack_int32(throttle_time_ms)
        write_count(out, len(topics), self._flexible)

    def advance(self) -> list[Chunk] | None:
        """Write a slice; the chunks, if it was the last."""
        budget = _RESULTS_PER_SLICE
        while self._left or self._topic < len(self._topics):
            if budget <= 0:
                return None
            budget -= 1
            if self._left:
                self._write(self._results[-self._left])
                self._left -= 1
            else:
                self._begin_topic()
            if self._flexible and not self._left:
                self._out.append(0)
        return self._finish()

    def _begin_topic(self) -> None:
        topic, self._results = self._topics[self._topic]
        self._topic += 1
        self._left = len(self._results)
        if not isinstance(topic, str):
            self._out += topic
        elif self._flexible:
            write_compact_text(self._out, topic)
        else:
            write_text(self._out, topic)
        write_count(self._out, self._left, self._flexible)

    def _write(self, result: FetchResult) -> None:
        out, flexible, records = self._out, self._flexible, result.records
        if self._version >= _RESULT_LOG_START_FROM:
            out += _RESULT_V5.pack(
                result.partition,
                result.error_code,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
            )
        else:
            out += _RESULT_V4.pack(
                result.partition, result.error_code, result.high_watermark, result.last_stable_offset
            )
        _write_aborted(out, result.aborted, flexible)
        if self._version >= _PREFERRED_FROM:
            out += pack_int32(result.preferred_read_replica)
        size = 0
        if records is not None:
            size = len(records) if isinstance(records, bytes) else records.size_bytes
        if flexible:
            write_uvarint(out, size + 1)
        else:
            out += pack_int32(size)
        if size:
            assert records is not None
            self._total += len(out) + size
            self._out = out = bytearray()
            self._chunks.append(records)
            self._chunks.append(out)
        if flexible:
            _write_partition_tags(out, result.diverging, result.leader)

    def _finish(self) -> list[Chunk]:
        out, chunks = self._out, self._chunks
        if self._flexible:
            if self._endpoints and self._version >= _ENDPOINTS_FROM:
                write_node_endpoints(out, self._endpoints)
            else:
                out.append(0)
        first = chunks[0]
        assert isinstance(first, bytearray)
        pack_int32_into(first, 0, self._total + len(out) - SIZE_BYTES)
        if not out:
            chunks.pop()
        return chunks


def _write_aborted(out: bytearray, aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> None:
    write_count(out, -1 if aborted is None else len(aborted), flexible)
    for transaction in aborted or ():
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
