"""What a shard forgets by itself: offsets of deleted topics, expired offsets, groups with nothing left.

Works in bounded batches: called again until it finds nothing more to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.group_records import group_tombstones
from pykraft.group_coordinator.records import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.group_coordinator.result import Call, CoordinatorResult
from pykraft.group_coordinator.state import ShardState
from pykraft.group_coordinator.subscription import TopicsView

MAX_BATCH_RECORDS = 500


def topics_gone(state: ShardState, topics: TopicsView) -> list[str]:
    """Topics with committed offsets that do not exist. Nothing is known to be gone before the first image."""
    if topics.image.offset < 0:
        return []
    named = {name for offsets in state.offsets.values() for name in offsets}
    return sorted(name for name in named if topics.topic_id(name) is None)


def build_cleanup(
    state: ShardState, call: Call, deleted_topics: Mapping[str, ShardState] | None = None
) -> CoordinatorResult:
    """Tombstones for offsets of ``deleted_topics`` (as of the state given), or else for what has expired."""
    if deleted_topics is not None:
        found = _of_deleted_topics(state, deleted_topics)
    else:
        found = _expired(state, call)
    return CoordinatorResult(None, tuple(islice(found, MAX_BATCH_RECORDS)))


def _of_deleted_topics(state: ShardState, deleted_topics: Mapping[str, ShardState]) -> Iterator[GroupRecord]:
    for group_id in sorted(state.offsets):
        topics = state.offsets[group_id]
        for topic in sorted(name for name in deleted_topics if name in topics):
            before = deleted_topics[topic].group_offsets(group_id).get(topic)
            for partition in sorted(topics[topic]):
                # A later commit belongs to a new topic of the same name.
                if before is not None and before.get(partition) is topics[topic][partition]:
                    yield GroupRecord(OffsetCommitKey(group_id, topic, partition), None)


def _expired(state: ShardState, call: Call) -> Iterator[GroupRecord]:
    for group_id in sorted(state.groups):
        group = state.groups[group_id]
        if not group.is_empty or (isinstance(group, ClassicGroup) and group.pending_member_ids):
            continue
        emptied_ms = group.state_timestamp_ms if isinstance(group, ClassicGroup) else -1
        keeps_some = False
        for topic, partitions in sorted(state.group_offsets(group_id).items()):
            for partition, value in sorted(partitions.items()):
                if _expires_ms(value, emptied_ms, call) <= call.wall_ms:
                    yield GroupRecord(OffsetCommitKey(group_id, topic, partition), None)
                else:
                    keeps_some = True
        idle = emptied_ms + call.config.offsets_retention_ms <= call.wall_ms
        if not keeps_some and idle:
            if isinstance(group, ConsumerGroup):
                yield from group_tombstones(group)
            elif group.generation:
                yield GroupRecord(GroupMetadataKey(group_id), None)


def _expires_ms(value: OffsetCommitValue, emptied_ms: int, call: Call) -> int:
    """A commit lives for the retention time, counted from when the group lost its last member if later."""
    if value.expire_timestamp_ms is not None:
        return value.expire_timestamp_ms
    return max(value.commit_timestamp_ms, emptied_ms) + call.config.offsets_retention_ms
