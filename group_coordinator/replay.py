"""The only way state changes: one record in, the next state out.

Used on the live path, after a failover and in tests alike. Must be idempotent, and must not care in which
order a compacted log brings records of different keys; it never reads a clock and never refuses a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
from pykraft.group_coordinator.state import NO_OFFSETS, ShardState
from pykraft.metadata_log.persistent import Map


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
    """Members and epochs are gone; offsets, if any, stay behind in an empty group."""
    if group_id in state.offsets:
        return state.with_group(ClassicGroup(group_id))
    return state.without_group(group_id)


def _replay_offset(state: ShardState, key: OffsetCommitKey, value: OffsetCommitValue | None) -> ShardState:
    topics = state.group_offsets(key.group_id)
    partitions = topics.get(key.topic)
    if value is None:
        if partitions is None or key.partition not in partitions:
            return state
        partitions = partitions.delete(key.partition)
        topics = topics.set(key.topic, partitions) if partitions else topics.delete(key.topic)
        offsets = state.offsets.set(key.group_id, topics) if topics else state.offsets.delete(key.group_id)
        state = replace(state, offsets=offsets)
        only_for_offsets = state.groups.get(key.group_id) == ClassicGroup(key.group_id)
        return state.without_group(key.group_id) if only_for_offsets and not topics else state
    partitions = (Map() if partitions is None else partitions).set(key.partition, value)
    offsets = state.offsets.set(key.group_id, (topics or NO_OFFSETS).set(key.topic, partitions))
    if key.group_id not in state.groups:
        state = state.with_group(ClassicGroup(key.group_id))
    return replace(state, offsets=offsets)
