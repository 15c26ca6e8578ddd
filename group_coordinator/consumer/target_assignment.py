"""Computes the target assignment with the assignor, and records the differences.

Only members whose target changed get a record; then the assignment epoch is set to the group epoch. No
partition is revoked or assigned here; members move to the target one heartbeat at a time. Assignments of a
group are at least ``consumer.assignment.interval.ms`` apart (KIP-1263), so that many members that join at
once cause few of them; until then members are reconciled to the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pykraft.group_coordinator.consumer.assignors.interface import Assignor, MemberSpec
from pykraft.group_coordinator.consumer.assignors.range import assign_range
from pykraft.group_coordinator.consumer.assignors.uniform import assign_uniform
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.records import (
    GroupRecord,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
)
from pykraft.group_coordinator.state.subscription import TopicsView

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def preferred_assignor(group: ConsumerGroup, configured: Sequence[str]) -> str:
    """The assignor that most members ask for; for ties, and if no member asks, the one configured first."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor)
    return max(configured, key=lambda name: (votes[name], -configured.index(name)))


def is_due(group: ConsumerGroup, interval_ms: int, wall_ms: int) -> bool:
    """Whether the target assignment is behind the group epoch and may be computed now.

    One that was computed in the future is due: the wall clock, or that of the last coordinator, was wrong.
    """
    if group.assignment_epoch >= group.epoch:
        return False
    computed_ms = group.assignment_timestamp_ms
    return not computed_ms <= wall_ms < computed_ms + interval_ms


def build_target(
    group: ConsumerGroup, topics: TopicsView, configured: Sequence[str], wall_ms: int
) -> tuple[list[GroupRecord], GroupRecord]:
    """The records that bring the target assignment up to the group epoch: of members, and of the group."""
    specs = {
        member.member_id: MemberSpec(
            topics.subscribed_ids(member, group.resolved),
            group.target_of(member.member_id),
            member.instance_id,
        )
        for member in group.iter_members()
    }
    wanted = {topic_id for spec in specs.values() for topic_id in spec.subscribed}
    assigned = ASSIGNORS[preferred_assignor(group, configured)](specs, topics.partition_counts(wanted))
    targets = [
        GroupRecord(
            TargetAssignmentMemberKey(group.group_id, member_id),
            TargetAssignmentMemberValue(assigned[member_id]),
        )
        for member_id in sorted(assigned)
        if group.targets.get(member_id) != assigned[member_id]
    ]
    metadata = TargetAssignmentMetadataValue(group.epoch, wall_ms)
    return targets, GroupRecord(TargetAssignmentMetadataKey(group.group_id), metadata)
