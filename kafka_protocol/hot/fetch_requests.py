"""Hand-written parser of Fetch requests, version 4 to 18, in place; long ones in slices, by the same code.

Responses are in :mod:`.fetch_responses`, the follower's side in :mod:`.fetch_follower`. Checked in tests
against the table-driven messages for every version.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

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


class FetchPartition(NamedTuple):
    """A request's fields for one partition. Absent ones keep the protocol's defaults."""

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
    steps = parse_in_slices(body, position, version)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        request: FetchRequestView = end.value
        return request


def parse_in_slices(body: memoryview, position: int, version: int) -> Generator[None, None, FetchRequestView]:
    """As :func:`parse_fetch_request`; yields after each slice.

    :class:`~.pace.TooManyItemsError` if topics and partitions together are too many.
    """
    try:
        parse = _parse_flexible if version >= _FLEXIBLE_FROM else _parse_classic
        request, position = yield from parse(body, position, version)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed Fetch request: {error}") from None
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes after a Fetch request")
    return request


def _parse_classic(
    body: memoryview, position: int, version: int
) -> Generator[None, None, tuple[FetchRequestView, int]]:
    end = len(body)
    head = _HEADS[version]
    fields = head.unpack_from(body, position)
    if version < _SESSIONS_FROM:
        fields += _NO_SESSION
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = fields
    position += head.size
    partition_layout = _PARTITIONS[version]
    (topic_count,) = unpack_int32(body, position)
    position += INT32_BYTES
    check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
    allowed = MAX_ITEMS - topic_count
    if topic_count > MAX_LISTS:
        raise _too_many()
    topics: list[FetchTopic] = []
    pause_at = position + SLICE_BYTES
    for _ in range(topic_count):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        name, position = read_text(body, position)
        (count,) = unpack_int32(body, position)
        position += INT32_BYTES
        check_count(count, end - position, partition_layout.size)
        allowed -= count
        if allowed < 0:
            raise _too_many()
        partitions: list[FetchPartition] = []
        for _ in range(count):
            if position >= pause_at:
                yield
                pause_at = position + SLICE_BYTES
            fields = partition_layout.unpack_from(body, position)
            position += partition_layout.size
            if version >= _LEADER_EPOCH_FROM:
                index, leader_epoch, offset, log_start, limit = fields
            elif version >= _LOG_START_FROM:
                index, offset, log_start, limit = fields
                leader_epoch = -1
            else:
                index, offset, limit = fields
                leader_epoch = log_start = -1
            partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start, limit))
        topics.append(FetchTopic(name, None, partitions))
    forgotten: list[ForgottenTopic] = []
    rack_id: str | None = None
    if version >= _SESSIONS_FROM:
        (topic_count,) = unpack_int32(body, position)
        position += INT32_BYTES
        check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
        allowed -= topic_count
        if allowed < 0 or topic_count > MAX_LISTS:
            raise _too_many()
        if topic_count:
            forgotten, position = yield from _classic_forgotten(body, position, topic_count, allowed)
    if version >= _RACK_FROM:
        rack_id, position = read_text(body, position)
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


def _classic_forgotten(
    body: memoryview, position: int, topic_count: int, allowed: int
) -> Generator[None, None, tuple[list[ForgottenTopic], int]]:
    end = len(body)
    forgotten: list[ForgottenTopic] = []
    pause_at = position + SLICE_BYTES
    for _ in range(topic_count):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        name, position = read_text(body, position)
        (count,) = unpack_int32(body, position)
        position += INT32_BYTES
        check_count(count, end - position, INT32_BYTES)
        allowed -= count
        if allowed < 0:
            raise _too_many()
        forgotten.append(ForgottenTopic(name, None, _int_array(body, position, count)))
        position += INT32_BYTES * count
    return forgotten, position


def _parse_flexible(
    body: memoryview, position: int, version: int
) -> Generator[None, None, tuple[FetchRequestView, int]]:
    end = len(body)
    head = _HEADS[version]
    fields = head.unpack_from(body, position)
    if version >= _REPLICA_STATE_FROM:
        fields = _NO_REPLICA + fields
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = fields
    topic_count, position = read_uvarint(body, position + head.size)
    topic_count -= 1
    check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
    allowed = MAX_ITEMS - topic_count
    if topic_count > MAX_LISTS:
        raise _too_many()
    topics: list[FetchTopic] = []
    pause_at = position + SLICE_BYTES
    partition_layout = _PARTITIONS[version]
    unpack, partition_bytes = partition_layout.unpack_from, partition_layout.size
    for _ in range(topic_count):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        name, topic_id, position = _topic_key(body, position, version)
        count, position = read_uvarint(body, position)
        count -= 1
        check_count(count, end - position, partition_bytes + 1)
        allowed -= count
        if allowed < 0:
            raise _too_many()
        partitions: list[FetchPartition] = []
        for _ in range(count):
            if position >= pause_at:
                yield
                pause_at = position + SLICE_BYTES
            partitions.append(FetchPartition(*unpack(body, position)))
            position += partition_bytes
            # Nearly always there are no tags, and a call takes as long as the rest of a partition.
            position = skip_tags(body, position, end) if body[position] else position + 1
        topics.append(FetchTopic(name, topic_id, partitions))
        position = skip_tags(body, position, end) if body[position] else position + 1
    topic_count, position = read_uvarint(body, position)
    topic_count -= 1
    check_count(topic_count, end - position, _MIN_TOPIC_BYTES)
    allowed -= topic_count
    if allowed < 0 or topic_count > MAX_LISTS:
        raise _too_many()
    forgotten: list[ForgottenTopic] = []
    if topic_count:
        forgotten, position = yield from _flexible_forgotten(body, position, version, topic_count, allowed)
    rack_id, position = read_compact_text(body, position)
    replica_epoch = -1
    cluster_id: str | None = None
    if body[position] == 0:
        position += 1
    else:
        count, position = read_tag_count(body, position, end)
        for _ in range(count):
            tag, start, position = read_tag(body, position, end)
            if tag == _CLUSTER_ID_TAG:
                cluster_id, _ = read_nullable_compact_text(body, start)
            elif tag == _REPLICA_STATE.tag and version >= _REPLICA_STATE_FROM:
                replica_id, replica_epoch = _REPLICA_STATE.layout.unpack_from(body, start)
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


def _flexible_forgotten(
    body: memoryview, position: int, version: int, topic_count: int, allowed: int
) -> Generator[None, None, tuple[list[ForgottenTopic], int]]:
    end = len(body)
    forgotten: list[ForgottenTopic] = []
    pause_at = position + SLICE_BYTES
    for _ in range(topic_count):
        if position >= pause_at:
            yield
            pause_at = position + SLICE_BYTES
        name, topic_id, position = _topic_key(body, position, version)
        count, position = read_uvarint(body, position)
        count -= 1
        check_count(count, end - position, INT32_BYTES)
        allowed -= count
        if allowed < 0:
            raise _too_many()
        forgotten.append(ForgottenTopic(name, topic_id, _int_array(body, position, count)))
        position = skip_tags(body, position + INT32_BYTES * count, end)
    return forgotten, position


def _too_many() -> TooManyItemsError:
    return TooManyItemsError(f"more than {MAX_ITEMS} topics and partitions, or than {MAX_LISTS} topics")


def _topic_key(body: memoryview, position: int, version: int) -> tuple[str | None, Uuid | None, int]:
    if version >= TOPIC_IDS_FROM:
        following = position + UUID_BYTES
        if following > len(body):
            raise ProtocolError("a topic id reaches past the end of the request")
        return None, Uuid(bytes(body[position:following])), following
    name, position = read_compact_text(body, position)
    return name, None, position


def _int_array(body: memoryview, position: int, count: int) -> list[int]:
    return list(Struct(f">{count}i").unpack_from(body, position))
