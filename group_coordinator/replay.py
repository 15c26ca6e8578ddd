"""Replays records, the only way in which state changes: takes a record and returns the next state.

Used on the live path, after a failover and in tests alike. It must be idempotent and independent of the order
in which a compacted log has records of different keys; it never reads a clock and never refuses a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.commits import TopicCommit, TopicRemoval
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group, replay_targets
from pykraft.group_coordinator.state.group_offsets import GroupOffsets, pack
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, TopicCounts, TopicOffsets, rows_of
from pykraft.group_coordinator.state.pending_offsets import NOTHING_PENDING, Place
from pykraft.group_coordinator.state.prepared_change import Index, PreparedChange, PreparedGroup
from pykraft.group_coordinator.state.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetAssignmentMemberKey,
)
from pykraft.group_coordinator.state.result import Record
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.metadata_log.persistent import Map

_MANY = 10
_NO_GROUPS: Map[str, int] = Map()


def replay_all(state: ShardState, records: Sequence[Record]) -> ShardState:
    """As :func:`replay` of one after the other; the targets of a group's members are replayed together."""
    if len(records) < _MANY:
        for record in records:
            state = replay(state, record)
        return state
    for group_id, run in groupby(records, _group_of_target):
        group = None if group_id is None else state.consumer_group(group_id)
        if group is None:
            for record in run:
                state = replay(state, record)
        else:
            state = state.with_group(replay_targets(group, run))
    return state


def _group_of_target(record: Record) -> str | None:
    """The group of which this is the target assignment of a member; None for any other record."""
    if isinstance(record, GroupRecord) and isinstance(record.key, TargetAssignmentMemberKey):
        return record.key.group_id
    return None


def replay(state: ShardState, record: Record) -> ShardState:
    if isinstance(record, TopicCommit):
        if state.pending.open:
            state = _cross_out(state, (record.group_id, record.topic), record.rows.partitions)
        counts: TopicCounts = {}
        old = state.group_offsets(record.group_id).get(record.topic, NO_PARTITIONS)
        return _with_offsets(state, record.group_id, record.topic, old.with_rows(record.rows, counts), counts)
    if isinstance(record, TopicRemoval):
        return _without_offsets(state, record)
    if isinstance(record, PreparedChange):
        return _replay_prepared(state, record)
    if isinstance(record, PreparedGroup):
        return state.with_group(record.group)
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
            return state.without_group(group_id) if state.consumer_group(group_id) else state
        case key:
            group = state.consumer_group(key.group_id)
            if group is None:
                if record.value is None:
                    return state
                group = ConsumerGroup(key.group_id)
            return state.with_group(replay_group(group, record))


def replay_transactional(state: ShardState, producer_id: int, records: Sequence[Record]) -> ShardState:
    """As :func:`replay_all`, for the records of a batch that is part of a transaction."""
    for group_id, run in groupby(records, _group_of_commit):
        if group_id is None:
            for record in run:
                state = replay(state, record)
            continue
        commits = [(one.topic, one.rows) for one in run if isinstance(one, TopicCommit)]
        state = replace(state, pending=state.pending.with_commits(producer_id, group_id, commits))
    return state


def _group_of_commit(record: Record) -> str | None:
    return record.group_id if isinstance(record, TopicCommit) else None


def replay_end(state: ShardState, producer_id: int, *, is_commit: bool) -> ShardState:
    """The state after the marker of a transaction."""
    pending, commits = state.pending.ended(producer_id, is_commit=is_commit)
    if pending is state.pending:
        return state
    # Nothing is crossed out by the commits: what is behind their records in the log may still count.
    state = replace(state, pending=NOTHING_PENDING)
    for group_id, run in groupby(commits, _group_of_commit):
        assert group_id is not None
        change = PreparedChange(group_id)
        for commit in run:
            change.add(commit.topic, commit.rows)
        state = _replay_prepared(state, change)
    return replace(state, pending=pending)


def _cross_out(state: ShardState, place: Place, partitions: Sequence[int]) -> ShardState:
    pending = state.pending.crossed_out(place, partitions)
    return state if pending is state.pending else replace(state, pending=pending)


def _replay_prepared(state: ShardState, change: PreparedChange) -> ShardState:
    if change.group_id in state.pending.open:
        pending = state.pending
        for topic, partitions in change.committed():
            pending = pending.crossed_out((change.group_id, topic), partitions)
        for topic in change.changes:
            pending = pending.without((change.group_id, topic), change.removed_of(topic))
        state = replace(state, pending=pending)
    topics, by_topic = change.merged(state)
    return _with_topics(state, change.group_id, topics, by_topic)


def _replay_classic(state: ShardState, group_id: str, value: GroupMetadataValue | None) -> ShardState:
    if value is None:
        return state.without_group(group_id) if state.classic_group(group_id) else state
    return state.with_group(ClassicGroup.from_value(group_id, value))


def _replay_offset(state: ShardState, key: OffsetCommitKey, value: OffsetCommitValue | None) -> ShardState:
    if value is None:
        return _without_offsets(state, TopicRemoval(key.group_id, key.topic, (key.partition,)))
    if state.pending.open:
        state = _cross_out(state, (key.group_id, key.topic), (key.partition,))
    partitions = state.group_offsets(key.group_id).get(key.topic, NO_PARTITIONS)
    counts: TopicCounts = {}
    partitions = partitions.with_rows(rows_of(key.partition, value), counts)
    return _with_offsets(state, key.group_id, key.topic, partitions, counts)


def _without_offsets(state: ShardState, removal: TopicRemoval) -> ShardState:
    group_id, topic, removed = removal
    if state.pending.open:
        state = replace(state, pending=state.pending.without((group_id, topic), removed))
    partitions = state.group_offsets(group_id).get(topic, NO_PARTITIONS)
    if not any(partition in partitions for partition in removed):
        return state
    counts: TopicCounts = {}
    return _with_offsets(state, group_id, topic, partitions.without(removed, counts), counts)


def _with_offsets(
    state: ShardState, group_id: str, topic: str, partitions: TopicOffsets, counts: TopicCounts
) -> ShardState:
    """The state with these offsets of a topic."""
    topics = state.group_offsets(group_id)
    topics = topics.set(topic, partitions) if partitions else topics.delete(topic)
    by_topic = _reindexed(state.groups_by_topic, group_id, topic, counts)
    return _with_topics(state, group_id, topics, by_topic)


def _with_topics(state: ShardState, group_id: str, topics: GroupOffsets, by_topic: Index) -> ShardState:
    """The state with these offsets of a group."""
    if topics:
        return ShardState(state.groups, state.offsets.set(group_id, pack(topics)), by_topic, state.pending)
    if group_id not in state.offsets:
        return state
    return ShardState(state.groups, state.offsets.delete(group_id), by_topic, state.pending)


def _reindexed(by_topic: Index, group_id: str, topic: str, counts: TopicCounts) -> Index:
    """The index after the number of a group's offsets of a topic has changed, most often by nothing."""
    for topic_id, change in counts.items():
        if not change:
            continue
        key = (topic, topic_id)
        groups = by_topic.get(key, _NO_GROUPS)
        count = groups.get(group_id, 0) + change
        groups = groups.set(group_id, count) if count else groups.delete(group_id)
        by_topic = by_topic.set(key, groups) if groups else by_topic.delete(key)
    return by_topic
