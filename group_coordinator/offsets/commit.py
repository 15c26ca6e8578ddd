"""OffsetCommit: checks whether the caller may commit, and builds the records.

All partitions of a request go into one batch, so that a commit is stored whole or not at all. The group
decides who may commit: a member must be at the current epoch or generation, and a caller that is not a member
can commit only to a group without members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice, repeat
from operator import lt
from struct import Struct
from typing import NamedTuple

from pykraft.group_coordinator.classic.sync import check_member
from pykraft.group_coordinator.consumer.assignment_epochs import check_commit
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.commits import TopicCommit, TopicRemoval
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.names import check_names
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, ROW_BYTES, Rows, make_extra
from pykraft.group_coordinator.state.records import TopicPartition
from pykraft.group_coordinator.state.result import Call, CommitCodes, CoordinatorResult
from pykraft.group_coordinator.state.sessions import SetTimer, TimerChange, TimerKey, TimerKind
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.offset_commit import FIELDS_BYTES, CommitRequestView, CommitTopic
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid

MEMBER_EPOCH_VERSION = 9
TOPIC_ID_VERSION = 10

_TIMESTAMP = Struct(">q")


def handle_offset_commit(
    state: ShardState, request: CommitRequestView, call: Call
) -> CoordinatorResult[CommitCodes]:
    """The response is the error code of each partition. What is refused is not written."""
    refused, timers = check_group(state, request, call)
    expires_ms = expires_at_ms(request, call)
    codes: list[int | list[int]] = []
    records = []
    for topic in request.topics:
        name = topic_name(topic, call)
        code = check_topic(name, topic, refused, call)
        codes.append(code)
        if name is not None and (code == ErrorCode.NONE if isinstance(code, int) else not all(code)):
            topic_id = recorded_topic_id(name, expires_ms, call)
            rows = build_rows(topic, code, call.wall_ms, expires_ms, topic_id)
            if rows.partitions:
                records.append(TopicCommit(request.group_id, name, rows))
    return CoordinatorResult(codes, tuple(records), timers)


class LookedUp(NamedTuple):
    """The partitions of a request, looked up; ``iter_committed`` yields those without an error."""

    total: int
    existing: int
    iter_committed: Callable[[], Iterator[TopicPartition]]


def expires_at_ms(request: CommitRequestView, call: Call) -> int | None:
    return None if request.retention_time_ms < 0 else call.wall_ms + request.retention_time_ms


def topic_name(topic: CommitTopic, call: Call) -> str | None:
    return call.topics.topic_name(topic.topic_id) if call.version >= TOPIC_ID_VERSION else topic.name


def recorded_topic_id(name: str, expires_ms: int | None, call: Call) -> Uuid:
    topic_id = call.topics.topic_id(name)
    return ZERO_UUID if topic_id is None or expires_ms is not None else topic_id


def check_group(
    state: ShardState, request: CommitRequestView, call: Call, looked_up: LookedUp | None = None
) -> tuple[ErrorCode, tuple[TimerChange, ...]]:
    """The error of the group for the partitions that exist; :class:`KafkaError` if they all do.

    As in Kafka, the group is not asked if none does. The empty group id is allowed, as it always was.
    ``looked_up``: None if the partitions are to be looked up where that decides something.
    """
    try:
        timers = _check_caller(state, request, call, looked_up)
    except KafkaError as error:
        existing = _count_existing(request, call) if looked_up is None else looked_up.existing
        total = _count_partitions(request) if looked_up is None else looked_up.total
        if existing and existing == total:
            raise
        return error.code if existing else ErrorCode.NONE, ()
    if not timers:
        return ErrorCode.NONE, ()  # only members of classic groups have a timer: most commits are not counted
    existing = _count_existing(request, call) if looked_up is None else looked_up.existing
    return ErrorCode.NONE, timers if existing else ()


def _count_partitions(request: CommitRequestView) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def _count_existing(request: CommitRequestView, call: Call) -> int:
    """The number of partitions that exist."""
    existing = 0
    for topic in request.topics:
        name, partitions = topic_name(topic, call), topic.partitions
        count = 0 if name is None else call.topics.partition_count(name)
        if partitions and min(partitions) >= 0 and max(partitions) < count:
            existing += len(partitions)
        else:
            existing += sum(0 <= partition < count for partition in partitions)
    return existing


def check_topic(name: str | None, topic: CommitTopic, refused: ErrorCode, call: Call) -> int | list[int]:
    """One error code for all partitions, or a list if they differ."""
    if name is None:
        return int(ErrorCode.UNKNOWN_TOPIC_ID)
    count, partitions, metadata = call.topics.partition_count(name), topic.partitions, topic.metadata
    if not count and partitions:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if metadata is None and partitions and min(partitions) >= 0 and max(partitions) < count:
        return int(refused)
    limit = call.config.offset_metadata_max_bytes
    return [
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not 0 <= partition < count
        else int(refused)
        if refused is not ErrorCode.NONE
        else int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if text is not None and len(text.encode("utf-8")) > limit
        else 0
        for partition, text in zip(partitions, metadata or repeat(None, len(partitions)), strict=True)
    ]


def build_rows(
    topic: CommitTopic, codes: int | list[int], wall_ms: int, expires_ms: int | None, topic_id: Uuid
) -> Rows:
    """Build a topic's commits in order of partitions; the last offset of a repeated one counts."""
    partitions, fields, metadata = topic.partitions, topic.fields, topic.metadata
    timestamp = _TIMESTAMP.pack(wall_ms)
    if len(partitions) == 1 and metadata is None and expires_ms is None:
        return Rows(partitions, fields + timestamp, topic_id)
    count = len(partitions)
    block = bytearray((bytes(FIELDS_BYTES) + timestamp) * count)
    for place in range(FIELDS_BYTES):
        block[place::ROW_BYTES] = fields[place::FIELDS_BYTES]
    rows = bytes(block)
    if isinstance(codes, list) or not _is_ascending(partitions):
        order = {
            partition: place
            for place, partition in enumerate(partitions)
            if not isinstance(codes, list) or not codes[place]
        }
        places = [order[partition] for partition in sorted(order)]
        rows = b"".join([rows[place * ROW_BYTES : (place + 1) * ROW_BYTES] for place in places])
        partitions = tuple(partitions[place] for place in places)
        metadata = None if metadata is None else [metadata[place] for place in places]
    extras = {}
    if metadata is not None or expires_ms is not None:
        for partition, text in zip(partitions, metadata or repeat(None, len(partitions)), strict=True):
            extra = make_extra(text or "", expires_ms, topic_id)
            if extra is not None:
                extras[partition] = extra
    return Rows(partitions, rows, topic_id, extras or None)


def _is_ascending(partitions: tuple[int, ...]) -> bool:
    return all(map(lt, partitions, islice(partitions, 1, None)))


def _check_caller(
    state: ShardState, request: CommitRequestView, call: Call, looked_up: LookedUp | None
) -> tuple[TimerChange, ...]:
    """:class:`KafkaError` unless the caller may commit. A commit of a classic member restarts its session."""
    check_names(request.group_id, code=ErrorCode.INVALID_GROUP_ID)
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and request.group_id not in state.groups:
        return ()  # whether it exists or not: most commits of groups without members
    match state.group(request.group_id):
        case None:
            if epoch >= 0:
                by_epoch = call.version >= MEMBER_EPOCH_VERSION
                code = ErrorCode.GROUP_ID_NOT_FOUND if by_epoch else ErrorCode.ILLEGAL_GENERATION
                raise KafkaError(code, f"There is no group {request.group_id}.")
            return ()
        case ConsumerGroup() as group:
            _check_consumer_member(group, request, call, looked_up)
            return ()
        case ClassicGroup() as classic:
            return _check_classic_member(classic, request)


def _check_consumer_member(
    group: ConsumerGroup, request: CommitRequestView, call: Call, looked_up: LookedUp | None
) -> None:
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not in the group.")
    if call.version < MEMBER_EPOCH_VERSION and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    committed = _iter_committed(request, call) if looked_up is None else looked_up.iter_committed()
    check_commit(member, epoch, committed)


def _iter_committed(request: CommitRequestView, call: Call) -> Iterator[TopicPartition]:
    """Yield what the request would commit, without partitions in error; unknown topics have the zero id."""
    for topic in request.topics:
        name = topic_name(topic, call)
        topic_id = ZERO_UUID if name is None else call.topics.topic_id(name) or ZERO_UUID
        codes = check_topic(name, topic, ErrorCode.NONE, call)
        for place, partition in enumerate(topic.partitions):
            if not (codes if isinstance(codes, int) else codes[place]):
                yield topic_id, partition


def _check_classic_member(group: ClassicGroup, request: CommitRequestView) -> tuple[TimerChange, ...]:
    generation = request.generation_id_or_member_epoch
    anonymous = generation < 0 and not request.member_id and request.group_instance_id is None
    is_empty = group.state is ClassicState.EMPTY
    if anonymous or (generation < 0 and is_empty):
        if not is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The group has members, and only they may commit.")
        return ()
    member = check_member(group, request.member_id, request.group_instance_id, generation)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The group is rebalancing.")
    key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
    return (SetTimer(key, member.session_timeout_ms),)


def build_offset_tombstones(state: ShardState, group_id: str) -> list[TopicRemoval]:
    """The records that delete all offsets of a group, pending ones, too."""
    by_topic = state.group_offsets(group_id)
    removals = [TopicRemoval(group_id, topic, tuple(by_topic[topic])) for topic in sorted(by_topic)]
    return removals + build_pending_tombstones(state, group_id)


def build_pending_tombstones(
    state: ShardState, group_id: str, wanted: Mapping[str, Collection[int]] | None = None
) -> list[TopicRemoval]:
    """The records that delete what a group has only from open transactions, of the ``wanted`` partitions."""
    removals, offsets = [], state.group_offsets(group_id)
    for topic, lines in sorted(state.pending.of_group(group_id).items()):
        committed = offsets.get(topic, NO_PARTITIONS)
        asked: Collection[int] = lines if wanted is None else wanted.get(topic, ())
        partitions = [one for one in sorted(lines) if one in asked and one not in committed]
        if partitions:
            removals.append(TopicRemoval(group_id, topic, partitions))
    return removals
