"""Hand-written parser of Fetch requests, version 4 to 18, in place; long ones in slices, by the same code.

Responses are in :mod:`.fetch_responses`, the follower's side in :mod:`.fetch_follower`. Checked in tests
against the table-driven messages for every version.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from struct import error as struct_error
from typing import Any

from pykraft.kafka_protocol.codec.pace import MAX_ITEMS, MAX_LISTS, SLICE_BYTES, TooManyItemsError
from pykraft.kafka_protocol.codec.tagged import read_tag, read_tag_count
from pykraft.kafka_protocol.hot.wire import (
    INT32_BYTES,
    UUID_BYTES,
    TaggedStruct,
    check_count,
    layout,
    read_compact_text,
    read_nullable_compact_text,
    read_text,
    since,
    skip_tags,
    unpack_int32,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records as tables
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint
from pykraft.lazy_dataclass import dataclass

_VERSIONS = range(tables.FetchRequest.MIN_VERSION, tables.FetchRequest.MAX_VERSION + 1)
_FLEXIBLE_FROM = tables.FetchRequest.FLEXIBLE_FROM
TOPIC_IDS_FROM = since(tables.FetchTopic, "topic_id")
_REPLICA_STATE_FROM = since(tables.FetchRequest, "replica_state")
_SESSIONS_FROM = since(tables.FetchRequest, "session_id")
_RACK_FROM = since(tables.FetchRequest, "rack_id")
_LEADER_EPOCH_FROM = since(tables.FetchPartition, "current_leader_epoch")
_LOG_START_FROM = since(tables.FetchPartition, "log_start_offset")
_MIN_TOPIC_BYTES = 3
READ_COMMITTED = 1
"""An isolation level."""
_HEADS = {
    version: layout(
        tables.FetchRequest, "max_wait_ms" if version >= _REPLICA_STATE_FROM else "replica_id", version
    )
    for version in _VERSIONS
}
"""From the replica id (if that is tagged: from the maximum wait) to the isolation level or session epoch."""
_NO_REPLICA = (-1,)
_NO_SESSION = (0, -1)
_PARTITIONS = {version: layout(tables.FetchPartition, "partition", version) for version in _VERSIONS}
_CLUSTER_ID_TAG = 0
_REPLICA_STATE = TaggedStruct(tables.FetchRequest, "replica_state", "replica_id")
_MALFORMED = (struct_error, IndexError, UnicodeDecodeError)


@dataclass(slots=True)  # these are made of each request, and frozen ones take three times as long
class FetchPartition:
    """A request's fields for one partition. Absent ones keep the protocol's defaults."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


@dataclass(slots=True)
class FetchTopic:
    """``name`` up to version 12, ``topic_id`` from version 13; the other is None."""

    name: str | None
    topic_id: Uuid | None
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    name: str | None
    topic_id: Uuid | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequestView:
    """A parsed request. ``replica_id`` is -1 for consumers; ``replica_epoch`` -1 if none was sent.

    ``rack_id`` is None before version 11: such a consumer knows leaders only (KIP-392).
    """

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
    rack_id: str | None
    cluster_id: str | None

    @property
    def reads_committed(self) -> bool:
        """Whether a consumer reads nothing of transactions that are open or were aborted."""
        return self.isolation_level == READ_COMMITTED and self.replica_id < 0

    @property
    def needs_leader(self) -> bool:
        """Whether only the leader may answer it."""
        return self.replica_id >= 0 or self.rack_id is None


def parse_fetch_request(body: memoryview, position: int, version: int) -> FetchRequestView:
    """Parse the body that starts at ``position`` and fills the rest of the frame."""
    parser = _Parser(body, position, version)
    while (request := parser.advance()) is None:
        pass
    return request


def parse_in_slices(body: memoryview, position: int, version: int) -> Generator[None, None, FetchRequestView]:
    """As :func:`parse_fetch_request`; yields between slices of :data:`~.pace.SLICE_BYTES`.

    :class:`~.pace.TooManyItemsError` if topics and partitions together are too many.
    """
    parser = _Parser(body, position, version)
    while (request := parser.advance()) is None:
        yield
    return request


class _Parser:
    """Where the parse of one request is. One is made of each request: a generator would cost more."""

    __slots__ = (
        "_allowed",
        "_body",
        "_end",
        "_flexible",
        "_forgets",
        "_forgotten",
        "_head",
        "_layout",
        "_partition_bytes",
        "_partitions",
        "_partitions_left",
        "_position",
        "_topics",
        "_topics_left",
        "_version",
    )

    def __init__(self, body: memoryview, position: int, version: int) -> None:
        self._body = body
        self._end = len(body)
        self._position = position
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM
        self._layout = _PARTITIONS[version]
        self._partition_bytes = self._layout.size
        self._head: tuple[Any, ...] = ()
        """From the replica id to the session epoch; empty until it is parsed."""
        self._allowed = MAX_ITEMS
        self._topics: list[FetchTopic] = []
        self._forgotten: list[ForgottenTopic] = []
        self._forgets = False
        """Whether the array of forgotten topics has begun."""
        self._topics_left = 0
        """How many the array that is being parsed still holds."""
        self._partitions: list[FetchPartition] = []
        self._partitions_left = 0

    def advance(self) -> FetchRequestView | None:
        """Parse a slice; the request, if it was the last."""
        try:
            if not self._head:
                self._begin()
            pause_at = self._position + SLICE_BYTES
            while self._partitions_left or self._topics_left or self._begin_forgotten():
                if self._position >= pause_at:
                    return None
                if self._partitions_left:
                    self._partitions_left -= 1
                    self._parse_partition()
                else:
                    self._topics_left -= 1
                    self._begin_topic()
                if self._flexible and not self._partitions_left:
                    self._position = skip_tags(self._body, self._position, self._end)
            return self._finish()
        except _MALFORMED as error:
            raise ProtocolError(f"malformed Fetch request: {error}") from None

    def _begin(self) -> None:
        layout = _HEADS[self._version]
        head = layout.unpack_from(self._body, self._position)
        if self._version >= _REPLICA_STATE_FROM:
            head = _NO_REPLICA + head
        elif self._version < _SESSIONS_FROM:
            head += _NO_SESSION
        self._head = head
        self._position += layout.size
        self._topics_left = self._count_topics()

    def _begin_forgotten(self) -> bool:
        """Behind the topics; whether some are forgotten."""
        if self._forgets or self._version < _SESSIONS_FROM:
            return False
        self._forgets = True
        self._topics_left = self._count_topics()
        return self._topics_left > 0

    def _count_topics(self) -> int:
        count = self._count(_MIN_TOPIC_BYTES)
        if count > MAX_LISTS:
            raise _too_many()
        return count

    def _count(self, min_bytes: int) -> int:
        """The length of an array that is not null."""
        if self._flexible:
            count, self._position = read_uvarint(self._body, self._position)
            count -= 1
        else:
            (count,) = unpack_int32(self._body, self._position)
            self._position += INT32_BYTES
        check_count(count, self._end - self._position, min_bytes)
        self._allowed -= count
        if self._allowed < 0:
            raise _too_many()
        return count

    def _begin_topic(self) -> None:
        """A forgotten one is parsed as a whole."""
        body, position = self._body, self._position
        name: str | None = None
        topic_id: Uuid | None = None
        if self._version >= TOPIC_IDS_FROM:
            self._position += UUID_BYTES
            if self._position > self._end:
                raise ProtocolError("a topic id reaches past the end of the request")
            topic_id = Uuid(bytes(body[position : self._position]))
        elif self._flexible:
            name, self._position = read_compact_text(body, position)
        else:
            name, self._position = read_text(body, position)
        if self._forgets:
            count = self._count(INT32_BYTES)
            indexes = list(Struct(f">{count}i").unpack_from(body, self._position))
            self._forgotten.append(ForgottenTopic(name, topic_id, indexes))
            self._position += INT32_BYTES * count
        else:
            self._partitions_left = self._count(self._partition_bytes + self._flexible)
            self._partitions = []
            self._topics.append(FetchTopic(name, topic_id, self._partitions))

    def _parse_partition(self) -> None:
        fields = self._layout.unpack_from(self._body, self._position)
        self._position += self._partition_bytes
        leader_epoch = last_epoch = log_start = -1
        if self._flexible:
            index, leader_epoch, offset, last_epoch, log_start, limit = fields
            self._position = skip_tags(self._body, self._position, self._end)
        elif self._version >= _LEADER_EPOCH_FROM:
            index, leader_epoch, offset, log_start, limit = fields
        elif self._version >= _LOG_START_FROM:
            index, offset, log_start, limit = fields
        else:
            index, offset, limit = fields
        self._partitions.append(FetchPartition(index, leader_epoch, offset, last_epoch, log_start, limit))

    def _finish(self) -> FetchRequestView:
        """Parse what is behind the arrays."""
        body = self._body
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = self._head
        request = FetchRequestView(
            replica_id,
            -1,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            self._topics,
            self._forgotten,
            None,
            None,
        )
        position = self._position
        if self._flexible:
            request.rack_id, position = read_compact_text(body, position)
            position = self._parse_tags(request, position)
        elif self._version >= _RACK_FROM:
            request.rack_id, position = read_text(body, position)
        if position != self._end:
            raise ProtocolError(f"{self._end - position} bytes after a Fetch request")
        return request

    def _parse_tags(self, request: FetchRequestView, position: int) -> int:
        """Returns the position behind them."""
        body, end = self._body, self._end
        count, position = read_tag_count(body, position, end)
        for _ in range(count):
            tag, start, position = read_tag(body, position, end)
            if tag == _CLUSTER_ID_TAG:
                request.cluster_id, _ = read_nullable_compact_text(body, start)
            elif tag == _REPLICA_STATE.tag and self._version >= _REPLICA_STATE_FROM:
                request.replica_id, request.replica_epoch = _REPLICA_STATE.layout.unpack_from(body, start)
        return position


def _too_many() -> TooManyItemsError:
    return TooManyItemsError(f"more than {MAX_ITEMS} topics and partitions, or than {MAX_LISTS} topics")
