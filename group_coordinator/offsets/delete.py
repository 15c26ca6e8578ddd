"""OffsetDelete: deletes a group's committed offsets of single partitions, in one batch.

A topic that the group reads is refused: its members would commit again, or begin at the wrong place. Of a
consumer group that are the topics that its members name (a topic that only a pattern matches can be deleted,
as in Kafka), of a classic group those in the subscriptions of its members, as the chosen protocol has them.
If those bytes are not a subscription, every topic counts as read. Other classic groups (Connect) must be
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.commits import TopicRemoval
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.names import check_group_id
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.group_coordinator.state.shard_state import Group, ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.consumer_protocol import PROTOCOL_TYPE, decode_subscribed_topics
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykraft.kafka_protocol.primitives import ProtocolError

_MERGED_AT_ONCE = 1_000


def handle_offset_delete(
    state: ShardState, request: OffsetDeleteRequest, topics: TopicsView
) -> CoordinatorResult[OffsetDeleteResponse]:
    """Partitions without an offset, committed or pending, are answered like the others, and cost no record.

    :class:`KafkaError` INVALID_GROUP_ID, GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP for the whole request.
    """
    is_read = reads_topic(existing_group(state, request.group_id))
    answer, removed = DeletionAnswer(), dict[str, dict[int, None]]()
    offsets = state.group_offsets(request.group_id)
    for topic in request.topics:
        known, unknown = split_partitions(topic, topics)
        refused = is_read(topic.name)
        answer.add(topic.name, known, unknown, refused)
        committed = offsets.get(topic.name, NO_PARTITIONS)
        pending = state.pending.of_topic(request.group_id, topic.name)
        if (committed or pending) and not refused:
            found = dict.fromkeys(index for index in known if index in committed or index in pending)
            if found:
                removed.setdefault(topic.name, {}).update(found)
    records = [TopicRemoval(request.group_id, name, tuple(indexes)) for name, indexes in removed.items()]
    return CoordinatorResult(answer.build(), tuple(records))


def split_partitions(topic: OffsetDeleteRequestTopic, topics: TopicsView) -> tuple[list[int], list[int]]:
    """The partitions of a request that exist, and those that do not."""
    size = topics.partition_count(topic.name)
    wanted = [partition.partition_index for partition in topic.partitions]
    known = [index for index in wanted if 0 <= index < size]
    return known, [] if len(known) == len(wanted) else [index for index in wanted if not 0 <= index < size]


class DeletionAnswer:
    """The partitions in the order of Kafka's answer: those that do not exist first."""

    def __init__(self) -> None:
        self._unknown: dict[str, OffsetDeleteResponseTopic] = {}
        self._others: list[OffsetDeleteResponseTopic] = []
        self._last: OffsetDeleteResponseTopic | None = None

    def add(
        self, topic: str, known: list[int], unknown: list[int], is_refused: bool, *, goes_on: bool = False
    ) -> None:
        """Add a topic, or more partitions of the last (``goes_on``); ``is_refused``: the group reads it."""
        if not goes_on:
            self._last = None
        if unknown:
            first = self._unknown.setdefault(topic, OffsetDeleteResponseTopic(name=topic))
            first.partitions += _partitions(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if known:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_refused else ErrorCode.NONE
            if self._last is None:
                self._last = OffsetDeleteResponseTopic(name=topic)
                self._others.append(self._last)
            self._last.partitions += _partitions(known, code)

    def build(self) -> OffsetDeleteResponse:
        work = self.build_in_slices()
        while True:
            try:
                next(work)
            except StopIteration as built:
                return OffsetDeleteResponse(topics=built.value)

    def build_in_slices(self) -> Generator[None, None, list[OffsetDeleteResponseTopic]]:
        """The topics of the answer. Only one with errors names each topic once."""
        if not self._unknown:
            return self._others
        merged = self._unknown
        for number, topic in enumerate(self._others, 1):
            first = merged.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
            first.partitions += topic.partitions
            if not number % _MERGED_AT_ONCE:
                yield
        return list(merged.values())


def _partitions(indexes: list[int], code: ErrorCode) -> list[OffsetDeleteResponsePartition]:
    return [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes]


def existing_group(state: ShardState, group_id: str) -> Group:
    check_group_id(group_id)
    group = state.group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    # Without members, a group that waits for those that were given an id is not empty yet.
    if (
        isinstance(group, ClassicGroup)
        and group.protocol_type != PROTOCOL_TYPE
        and group.state is not ClassicState.EMPTY
    ):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members of another kind.")
    return group


def reads_topic(group: Group) -> Callable[[str], bool]:
    if isinstance(group, ConsumerGroup):
        return group.subscribed_names.__contains__
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(decode_subscribed_topics(member.metadata_for(group.protocol_name)))
        except ProtocolError:
            return lambda topic: True
    return topics.__contains__
