"""Builders for the records of consumer groups, shared by all handlers."""

from __future__ import annotations

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentAssignmentKey,
    GroupRecord,
    RegularExpressionKey,
    ResolvedRegex,
    TargetAssignmentMemberKey,
    TargetAssignmentMetadataKey,
)


def member_metadata_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id, member.member_id), member.to_metadata_value())


def member_assignment_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    return GroupRecord(CurrentAssignmentKey(group_id, member.member_id), member.to_assignment_value())


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """Delete all records of a member, its assignment first, so that no reader ever finds half a member."""
    return (
        GroupRecord(CurrentAssignmentKey(group_id, member_id), None),
        GroupRecord(TargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    )


def group_epoch_record(group: ConsumerGroup, metadata_hash: int) -> GroupRecord:
    """The next group epoch, with the hash of the metadata of the subscribed topics."""
    return GroupRecord(
        ConsumerGroupMetadataKey(group.group_id), ConsumerGroupMetadataValue(group.epoch + 1, metadata_hash)
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> GroupRecord:
    return GroupRecord(RegularExpressionKey(group_id, regex), resolved)


def group_tombstones(group: ConsumerGroup) -> tuple[GroupRecord, ...]:
    """Delete a consumer group and all of its members, the group's own record last."""
    records: list[GroupRecord] = []
    for member_id in sorted(set(group.members) | set(group.targets)):
        records.extend(member_tombstones(group.group_id, member_id))
    records.extend(regex_record(group.group_id, regex, None) for regex in sorted(group.resolved))
    records.append(GroupRecord(TargetAssignmentMetadataKey(group.group_id), None))
    records.append(GroupRecord(ConsumerGroupMetadataKey(group.group_id), None))
    return tuple(records)
