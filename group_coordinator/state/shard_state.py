"""The state that one partition of ``__consumer_offsets`` holds: groups by id, and their committed offsets.

Immutable; :mod:`pykraft.group_coordinator.replay` derives the next one. Offsets may exist without members (of
a client that only commits): they then belong to an empty classic group, of which nothing else is kept.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TypeAlias

from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_offsets import NO_OFFSETS, GroupOffsets
from pykraft.group_coordinator.state.pending_offsets import NOTHING_PENDING, PendingOffsets
from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map

Group: TypeAlias = ClassicGroup | ConsumerGroup

TopicKey: TypeAlias = tuple[str, Uuid]
"""A topic by name and id, as committed offsets name it; the id is zero if they have none."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """``groups``: those that have more than offsets; :meth:`group` finds the others, too.

    ``groups_by_topic`` is an index of ``offsets``: how many offsets of a topic each group has.
    ``pending``: the offsets of transactions that have not ended.
    """

    groups: Map[str, Group] = field(default_factory=Map)
    offsets: Map[str, GroupOffsets] = field(default_factory=Map)
    groups_by_topic: Map[TopicKey, Map[str, int]] = field(default_factory=Map)
    pending: PendingOffsets = NOTHING_PENDING

    def group(self, group_id: str) -> Group | None:
        group = self.groups.get(group_id)
        if group is None and (group_id in self.offsets or group_id in self.pending.open):
            return ClassicGroup(group_id)
        return group

    def group_ids(self) -> set[str]:
        return {*self.groups, *self.offsets, *self.pending.open}

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.group(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def group_offsets(self, group_id: str) -> GroupOffsets:
        return self.offsets.get(group_id, NO_OFFSETS)

    def committed(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        partitions = self.group_offsets(group_id).get(topic)
        return None if partitions is None else partitions.get(partition)

    def with_group(self, group: Group) -> ShardState:
        return replace(self, groups=self.groups.set(group.group_id, group))

    def without_group(self, group_id: str) -> ShardState:
        """Without its members and epochs; its offsets, if it has any, remain."""
        return replace(self, groups=self.groups.delete(group_id)) if group_id in self.groups else self


EMPTY_STATE = ShardState()
