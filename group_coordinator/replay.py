"""Replays records, the only way in which state changes: takes a record and returns the next state.

Used on the live path, after a failover and in tests alike. It must be idempotent and independent of the order
in which a compacted log has records of different keys; it never reads a clock and never refuses a record.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.group import ConsumerGroup, replay_group
from pykraft.group_coordinator.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.group_coordinator.state import ShardState, TopicKey, TopicOffsets
from pykraft.metadata_log.persistent import Map

_NO_PARTITIONS: TopicOffsets = Map()
_NO_GROUPS: Map[str, int] = Map()


def replay_all(state: ShardState, records: Iterable[GroupRecord]) -> ShardState:
    for record in records:
        state = replay(state, record)
    return state


def replay(state: ShardState, record: GroupRecord) -> ShardState:
    match record.key:
        case OffsetCommitKey() as key:
            assert record.value is None or isinstance(record.value, OffsetCommitValue)
            return _replay_offset(state, key, record.value)
        case GroupMetadataKey(group_id):
            assert record.value is None or isinstance(record.value, GroupMetadataValue)
            return _replay_classic(state, group_id, record.value)
        case ConsumerGroupPartitionMetadataKey():
            return state
        case ConsumerGroupMetadataKey(group_id) if record.value is None:
            return _without_group(state, group_id) if state.consumer_group(group_id) else state
        case key:
            group = state.consumer_group(key.group_id)
            if group is None:
                if record.value is None:
                    return state
                group = ConsumerGroup(key.group_id)
            return state.with_group(replay_group(group, record))


def _replay_classic(state: ShardState, group_id: str, value: GroupMetadataValue | None) -> ShardState:
    if value is None:
        return _without_group(state, group_id) if state.classic_group(group_id) else state
    return state.with_group(ClassicGroup.from_value(group_id, value))


def _without_group(state: ShardState, group_id: str) -> ShardState:
    """Delete the members and epochs of a group; its offsets, if any, remain in an empty group."""
    if group_id in state.offsets:
        return state.with_group(ClassicGroup(group_id))
    return state.without_group(group_id)


def _replay_offset(state: ShardState, key: OffsetCommitKey, value: OffsetCommitValue | None) -> ShardState:
    topics = state.group_offsets(key.group_id)
    partitions = topics.get(key.topic, _NO_PARTITIONS)
    old = partitions.get(key.partition)
    if value is None and old is None:
        return state
    by_topic = _reindexed(state.groups_by_topic, key, old, value)
    if value is None:
        partitions = partitions.delete(key.partition)
        topics = topics.set(key.topic, partitions) if partitions else topics.delete(key.topic)
        offsets = state.offsets.set(key.group_id, topics) if topics else state.offsets.delete(key.group_id)
        state = ShardState(state.groups, offsets, by_topic)
        only_for_offsets = state.groups.get(key.group_id) == ClassicGroup(key.group_id)
        return state.without_group(key.group_id) if only_for_offsets and not topics else state
    offsets = state.offsets.set(key.group_id, topics.set(key.topic, partitions.set(key.partition, value)))
    groups = state.groups
    if key.group_id not in groups:
        groups = groups.set(key.group_id, ClassicGroup(key.group_id))
    return ShardState(groups, offsets, by_topic)


def _reindexed(
    by_topic: Map[TopicKey, Map[str, int]],
    key: OffsetCommitKey,
    old: OffsetCommitValue | None,
    new: OffsetCommitValue | None,
) -> Map[TopicKey, Map[str, int]]:
    """The index after ``new`` has replaced ``old``; most often both are of the same topic."""
    if old is not None and new is not None and old.topic_id == new.topic_id:
        return by_topic
    for value, change in ((old, -1), (new, +1)):
        if value is None:
            continue
        topic = (key.topic, value.topic_id)
        counts = by_topic.get(topic, _NO_GROUPS)
        count = counts.get(key.group_id, 0) + change
        counts = counts.set(key.group_id, count) if count else counts.delete(key.group_id)
        by_topic = by_topic.set(topic, counts) if counts else by_topic.delete(topic)
    return by_topic
