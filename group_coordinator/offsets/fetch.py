"""OffsetFetch: the committed offsets of one group (versions 1 to 7) or several (8 and later).

A partition without a committed offset is answered with -1, and so is every partition of a group that does not
exist: to a consumer both mean the same. Only the epoch of a member that sends one is checked.
"""

from __future__ import annotations

from typing import NamedTuple

from pykraft.group_coordinator.consumer.assignment_epochs import epoch_error
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_offsets import GroupOffsets
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS
from pykraft.group_coordinator.state.pending_offsets import NO_OPEN_TOPICS, OpenTopics
from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_VERSION = 8
TOPIC_ID_VERSION = 10


class Found(NamedTuple):
    """A group's offsets at one moment. ``unstable``: with an open transaction, if the client minds that."""

    offsets: GroupOffsets
    unstable: OpenTopics = NO_OPEN_TOPICS


def groups_of(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """The request as a list of groups, whatever its version."""
    if version >= GROUPS_VERSION:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics
            ],
        )
    ]


def find_offsets(
    state: ShardState, request: OffsetFetchRequestGroup, *, require_stable: bool = False
) -> Found:
    """All offsets of a group, at one moment; :class:`KafkaError` for an unknown member or a stale epoch."""
    _check_member(state, request)
    unstable = state.pending.of_group(request.group_id) if require_stable else NO_OPEN_TOPICS
    return Found(state.group_offsets(request.group_id), unstable)


def build_group(
    request: OffsetFetchRequestGroup, found: Found, topics: TopicsView, version: int
) -> OffsetFetchResponseGroup:
    """The answer about one group."""
    offsets, unstable = found
    answer = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        answer.topics = _all_topics(found, topics, version)
        return answer
    for topic in request.topics:
        name = topics.topic_name(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name
        committed = NO_PARTITIONS if name is None else offsets.get(name, NO_PARTITIONS)
        topic_id = None if name is None else topics.topic_id(name)
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
        waiting = () if name is None else unstable.get(name, ())
        answer.topics.append(
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _unstable(index)
                    if index in waiting
                    else _partition(index, of_topic(committed.get(index), topic_id), code)
                    for index in topic.partition_indexes
                ],
            )
        )
    return answer


def _all_topics(found: Found, topics: TopicsView, version: int) -> list[OffsetFetchResponseTopics]:
    offsets, unstable = found
    answers = []
    for name, committed in sorted(offsets.items()):
        topic_id = topics.topic_id(name)
        current = [(index, value) for index, value in committed.items() if of_topic(value, topic_id)]
        if not current or (topic_id is None and version >= TOPIC_ID_VERSION):
            continue  # the topic has just been deleted
        waiting = unstable.get(name, ())
        answers.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id or ZERO_UUID,
                partitions=[
                    _unstable(index) if index in waiting else _partition(index, value)
                    for index, value in current
                ],
            )
        )
    return answers


def of_topic(value: OffsetCommitValue | None, topic_id: Uuid | None) -> OffsetCommitValue | None:
    """The committed offset, if it is of this topic and not of a deleted one of the same name.

    Offsets of deleted topics are hidden at once; they are deleted later, in slices.
    """
    return value if value is not None and value.topic_id in (ZERO_UUID, topic_id) else None


def _check_member(state: ShardState, request: OffsetFetchRequestGroup) -> None:
    if request.member_id is None and request.member_epoch < 0:
        return
    group = state.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        return
    member = group.members.get(request.member_id or "")
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not in the group.")
    if request.member_epoch != member.epoch:
        raise KafkaError(epoch_error(member), f"The member is at epoch {member.epoch}.")


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _partition(
    index: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=code
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def group_error_code(code: ErrorCode) -> ErrorCode:
    """NOT_COORDINATOR in place of COORDINATOR_NOT_AVAILABLE, as in Kafka: consumers before 3.9 do not expect
    the latter here, and do not retry. Both make a client look for the coordinator.
    """
    return ErrorCode.NOT_COORDINATOR if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else code


def build_group_error(
    request: OffsetFetchRequestGroup, code: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    code = group_error_code(code)
    answer = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    if version < 2 and request.topics is not None:
        # Version 1 has no error code for the group: every partition carries it.
        answer.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_partition(index, None, code) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    return answer


def build_response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= GROUPS_VERSION:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
