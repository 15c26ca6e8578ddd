"""OffsetCommit: checks whether the caller may commit, and builds the records.

All partitions of a request go into one batch, so that a commit is stored whole or not at all. The group
decides who may commit: a member must be at the current epoch or generation, and a caller that is not a member
can commit only to a group without members.
"""

from __future__ import annotations

from pykraft.group_coordinator.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.classic_sync import check_member
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.names import check_names
from pykraft.group_coordinator.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.result import Call, CoordinatorResult
from pykraft.group_coordinator.sessions import SetTimer, TimerChange, TimerKey, TimerKind
from pykraft.group_coordinator.state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCH_VERSION = 9
TOPIC_ID_VERSION = 10


def handle_offset_commit(state: ShardState, request: OffsetCommitRequest, call: Call) -> CoordinatorResult:
    timers = _check_caller(state, request, call)
    expires_ms = None if request.retention_time_ms < 0 else call.wall_ms + request.retention_time_ms
    response, records = OffsetCommitResponse(), []
    for topic in request.topics:
        name = _topic_name(topic, call)
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answer)
        for partition in topic.partitions:
            code = _check_partition(name, partition, call)
            answer.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
            if code is ErrorCode.NONE and name is not None:
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    commit_timestamp_ms=call.wall_ms,
                    expire_timestamp_ms=expires_ms,
                    topic_id=_recorded_topic_id(name, expires_ms, call),
                )
                key = OffsetCommitKey(request.group_id, name, partition.partition_index)
                records.append(GroupRecord(key, value))
    return CoordinatorResult(response, tuple(records), timers)


def _topic_name(topic: OffsetCommitRequestTopic, call: Call) -> str | None:
    return call.topics.topic_name(topic.topic_id) if call.version >= TOPIC_ID_VERSION else topic.name


def _recorded_topic_id(name: str, expires_ms: int | None, call: Call) -> Uuid:
    topic_id = call.topics.topic_id(name)
    return ZERO_UUID if topic_id is None or expires_ms is not None else topic_id


def _check_partition(name: str | None, partition: OffsetCommitRequestPartition, call: Call) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= partition.partition_index < call.topics.partition_count(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode("utf-8")) > call.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _check_caller(state: ShardState, request: OffsetCommitRequest, call: Call) -> tuple[TimerChange, ...]:
    """:class:`KafkaError` unless the caller may commit. A commit of a classic member restarts its session."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    check_names(request.group_id, code=ErrorCode.INVALID_GROUP_ID)
    epoch = request.generation_id_or_member_epoch
    match state.groups.get(request.group_id):
        case None:
            if epoch >= 0:
                by_epoch = call.version >= MEMBER_EPOCH_VERSION
                code = ErrorCode.GROUP_ID_NOT_FOUND if by_epoch else ErrorCode.ILLEGAL_GENERATION
                raise KafkaError(code, f"There is no group {request.group_id}.")
            return ()
        case ConsumerGroup() as group:
            _check_consumer_member(group, request, call)
            return ()
        case ClassicGroup() as classic:
            return _check_classic_member(classic, request)


def _check_consumer_member(group: ConsumerGroup, request: OffsetCommitRequest, call: Call) -> None:
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not in the group.")
    if call.version < MEMBER_EPOCH_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Members of a consumer group need OffsetCommit version 9.",
        )
    if epoch != member.epoch:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"The member is at epoch {member.epoch}, not {epoch}.")


def _check_classic_member(group: ClassicGroup, request: OffsetCommitRequest) -> tuple[TimerChange, ...]:
    generation = request.generation_id_or_member_epoch
    anonymous = generation < 0 and not request.member_id and request.group_instance_id is None
    if anonymous or (generation < 0 and group.is_empty):
        if not group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The group has members, and only they may commit.")
        return ()
    member = check_member(group, request.member_id, request.group_instance_id, generation)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The group is rebalancing.")
    key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
    return (SetTimer(key, member.session_timeout_ms),)


def build_offset_tombstones(state: ShardState, group_id: str) -> list[GroupRecord]:
    """The records that delete all offsets of a group."""
    return [
        GroupRecord(OffsetCommitKey(group_id, topic, partition), None)
        for topic, partitions in sorted(state.group_offsets(group_id).items())
        for partition in sorted(partitions)
    ]
