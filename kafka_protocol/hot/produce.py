"""Hand-written Produce codec: requests of version 3 to 13 parsed in place, responses written in one pass.

Record sets stay views into the frame, so they are valid (and writable) only as long as the frame is. Long
messages are parsed and built in slices, by the same code. Checked in tests against the table-driven messages
for every version. Decides nothing about records; malformed bodies raise :class:`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from struct import error as struct_error

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
    write_count,
    write_node_endpoints,
    write_text,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint
from pykraft.lazy_dataclass import dataclass

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


@dataclass(slots=True)  # these are made of each request, and frozen ones take three times as long
class ProduceRow:
    """One record set, None as sent. ``topic`` up to version 12, then ``topic_id``; the other is None."""

    topic: str | None
    topic_id: Uuid | None
    partition: int
    records: memoryview | None


@dataclass(slots=True)
class ProduceRequestView:
    """A parsed request. ``rows`` and ``topics`` keep the client's order, which the response repeats."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | Uuid, int]]
    """What the response repeats of each topic, and how many rows are of it."""
    rows: list[ProduceRow]


@dataclass(slots=True)
class ProduceResult:
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
    parser = _Parser(body, position, version)
    return parser.request() if parser.advance() else None


def parse_in_slices(
    body: memoryview, position: int, version: int
) -> Generator[None, None, ProduceRequestView]:
    """As :func:`parse_if_short`; yields between slices of :data:`~.pace.SLICE_BYTES`, records not counted.

    :class:`ProtocolError` for a malformed body or more than :data:`MAX_ELEMENTS` topics and partitions.
    """
    parser = _Parser(body, position, version)
    while not parser.advance():
        yield
    return parser.request()


class _Parser:
    """Where the parse of one request is. One is made of each request: a generator would cost more."""

    __slots__ = (
        "_acks",
        "_allowed",
        "_begun",
        "_body",
        "_end",
        "_flexible",
        "_name",
        "_partitions",
        "_position",
        "_rows",
        "_timeout_ms",
        "_topic_id",
        "_topics",
        "_topics_left",
        "_transactional_id",
        "_version",
    )

    def __init__(self, body: memoryview, position: int, version: int) -> None:
        self._body = body
        self._end = len(body)
        self._position = position
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM
        self._begun = False
        self._transactional_id: str | None = None
        self._acks = 0
        self._timeout_ms = 0
        self._allowed = 0
        self._topics: list[tuple[str | Uuid, int]] = []
        self._rows: list[ProduceRow] = []
        self._topics_left = 0
        self._partitions = 0
        """Left of the topic that is being parsed; its name or id follows."""
        self._name: str | None = None
        self._topic_id: Uuid | None = None

    def advance(self) -> bool:
        """Parse a slice; whether it was the last."""
        try:
            if not self._begun:
                self._begin()
            pause_at = self._position + SLICE_BYTES
            while self._partitions or self._topics_left:
                if self._position >= pause_at:
                    return False
                if not self._partitions:
                    self._topics_left -= 1
                    self._begin_topic()
                else:
                    self._partitions -= 1
                    pause_at += self._parse_partition()
                if self._flexible and not self._partitions:
                    self._position = skip_tags(self._body, self._position, self._end)
            if self._flexible:
                self._position = skip_tags(self._body, self._position, self._end)
            _check_end(self._body, self._position)
        except _MALFORMED as error:
            raise ProtocolError(f"malformed Produce request: {error}") from None
        return True

    def request(self) -> ProduceRequestView:
        """Once it is parsed."""
        return ProduceRequestView(
            self._transactional_id, self._acks, self._timeout_ms, self._topics, self._rows
        )

    def _begin(self) -> None:
        body, position = self._body, self._position
        if self._flexible:
            self._transactional_id, position = read_nullable_compact_text(body, position)
        elif unpack_int16(body, position)[0] >= 0:
            self._transactional_id, position = read_text(body, position)
        else:
            position += INT16_BYTES
        self._acks, self._timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
        self._topics_left, self._position = self._count(position + _ACKS_TIMEOUT_BYTES, _MIN_TOPIC_BYTES)
        self._allowed = MAX_ELEMENTS - self._topics_left
        self._begun = True

    def _count(self, position: int, min_bytes: int) -> tuple[int, int]:
        """The length of an array that is not null, and the position behind it."""
        if self._flexible:
            count, position = read_uvarint(self._body, position)
            count -= 1
        else:
            (count,) = unpack_int32(self._body, position)
            position += INT32_BYTES
        check_count(count, self._end - position, min_bytes)
        return count, position

    def _begin_topic(self) -> None:
        body, position = self._body, self._position
        key: str | Uuid
        if self._version >= _TOPIC_IDS_FROM:
            key = self._topic_id = Uuid(bytes(body[position : position + UUID_BYTES]))
            position += UUID_BYTES
        else:
            read = read_compact_text if self._flexible else read_text
            key, position = read(body, position)
            self._name = key
        self._partitions, self._position = self._count(position, _MIN_PARTITION_BYTES)
        self._allowed -= self._partitions
        if self._allowed < 0:
            raise ProtocolError(f"more than {MAX_ELEMENTS} topics and partitions in a Produce request")
        self._topics.append((key, self._partitions))

    def _parse_partition(self) -> int:
        """Returns the size of its record set."""
        body, position = self._body, self._position
        if self._flexible:
            (index,) = _INDEX.unpack_from(body, position)
            size, position = read_uvarint(body, position + _INDEX_BYTES)
            size -= 1
        else:
            index, size = _INDEX_SIZE.unpack_from(body, position)
            position += _INDEX_SIZE_BYTES
        records: memoryview | None = None
        if size >= 0:
            following = position + size
            if following > self._end:
                raise ProtocolError("a record set reaches past the end of the request")
            records = body[position:following]
            position = following
        self._rows.append(ProduceRow(self._name, self._topic_id, index, records))
        self._position = skip_tags(body, position, self._end) if self._flexible else position
        return max(size, 0)


def _check_end(body: memoryview, position: int) -> None:
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes after a Produce request")


def build(
    out: bytearray,
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | Uuid, int]],
    results: Sequence[ProduceResult],
    *,
    throttle_time_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> None:
    """The whole frame, size prefix and response header included, into an empty ``out``. ``topics`` are those
    of the request; ``results`` are in the order of its rows.
    """
    writer = _Writer(out, version, correlation_id, topics, results, throttle_time_ms, endpoints)
    while not writer.advance():
        pass


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
    """As :func:`build`; yields between slices of :data:`RESULTS_PER_SLICE`."""
    writer = _Writer(out, version, correlation_id, topics, results, throttle_time_ms, endpoints)
    while not writer.advance():
        yield


class _Writer:
    """How far the answer of one request is written."""

    __slots__ = (
        "_endpoints",
        "_flexible",
        "_left",
        "_out",
        "_position",
        "_results",
        "_throttle",
        "_topic",
        "_topics",
        "_version",
    )

    def __init__(
        self,
        out: bytearray,
        version: int,
        correlation_id: int,
        topics: Sequence[tuple[str | Uuid, int]],
        results: Sequence[ProduceResult],
        throttle_time_ms: int,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        self._out = out
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM
        self._topics = topics
        self._results = results
        self._throttle = throttle_time_ms
        self._endpoints = endpoints
        self._topic = 0
        self._left = 0
        """Results of the topic that is being written."""
        self._position = 0
        out += _NO_SIZE
        out += pack_int32(correlation_id)
        if self._flexible:
            out.append(0)  # no tagged fields in the response header
        write_count(out, len(topics), self._flexible)

    def advance(self) -> bool:
        """Write a slice; whether it was the last."""
        budget = RESULTS_PER_SLICE
        while self._left or self._topic < len(self._topics):
            if budget <= 0:
                return False
            budget -= 1
            if not self._left:
                self._begin_topic()
            else:
                result = self._results[self._position]
                budget -= len(result.record_errors)
                self._left -= 1
                self._position += 1
                self._write(result)
            if self._flexible and not self._left:
                self._out.append(0)
        self._out += pack_int32(self._throttle)
        if self._flexible:
            if self._endpoints and self._version >= _LEADERS_FROM:
                write_node_endpoints(self._out, self._endpoints)
            else:
                self._out.append(0)
        pack_int32_into(self._out, 0, len(self._out) - SIZE_BYTES)
        return True

    def _begin_topic(self) -> None:
        topic, self._left = self._topics[self._topic]
        self._topic += 1
        if not isinstance(topic, str):
            self._out += topic
        elif self._flexible:
            write_compact_text(self._out, topic)
        else:
            write_text(self._out, topic)
        write_count(self._out, self._left, self._flexible)

    def _write(self, result: ProduceResult) -> None:
        out, version = self._out, self._version
        if version < _LOG_START_FROM:
            out += _RESULT_V3.pack(
                result.partition, result.error_code, result.base_offset, result.log_append_time_ms
            )
            return
        out += _RESULT_V5.pack(
            result.partition,
            result.error_code,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
        )
        if version < _MESSAGES_FROM:
            return
        write_count(out, len(result.record_errors), self._flexible)
        for index, message in result.record_errors:
            out += pack_int32(index)
            if self._flexible:
                write_compact_text(out, message)
                out.append(0)
            else:
                write_text(out, message)
        if not self._flexible:
            write_text(out, result.error_message)
            return
        write_compact_text(out, result.error_message)
        if result.leader is not None and version >= _LEADERS_FROM:
            out.append(1)
            out += _LEADER.encode(*result.leader)
        else:
            out.append(0)
