"""The steps in which a request of one member changes a consumer group (KIP-848).

Both kinds of members take them: those that send ConsumerGroupHeartbeat (:mod:`.heartbeat`), and those that
still join with the classic protocol
(:mod:`~pykraft.group_coordinator.migration.members_in_classic_protocol`). The member is created or changed;
the group epoch increases if a subscription or the subscribed topics changed; the target assignment is brought
up to the group epoch, if that is due; the member is taken one step towards it. Every step yields records,
which are applied to a working copy of the group, so that the next step sees exactly what a replay will.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace
from enum import Enum

from pykraft.group_coordinator.consumer.current_assignment import reconcile
from pykraft.group_coordinator.consumer.regex_refresh import check_regex
from pykraft.group_coordinator.consumer.target_assignment import build_target, is_due
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group, replay_targets
from pykraft.group_coordinator.state.group_records import (
    group_epoch_record,
    member_assignment_record,
    member_metadata_record,
    member_tombstones,
    regex_record,
)
from pykraft.group_coordinator.state.member import JOIN_EPOCH, ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import (
    NO_PARTITIONS,
    GroupRecord,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TopicPartition,
)
from pykraft.group_coordinator.state.result import Call, Record
from pykraft.group_coordinator.state.sessions import TimerChange, cancel_member_timers
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass


class Change(Enum):
    """How a request changes its member's subscription."""

    NOTHING = 0
    UNRESOLVED = 1
    """Its regular expression, for one whose topics are not known yet: the group epoch moves when they are."""
    TOPICS = 2


@dataclass(slots=True)
class ConsumerDraft:
    """A working copy of the group and the records that led to it."""

    group: ConsumerGroup
    records: list[Record] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)

    def add(self, *records: GroupRecord) -> None:
        for record in records:
            self.records.append(record)
            self.group = replay_group(self.group, record)


def check_size(group: ConsumerGroup, member_id: str, call: Call) -> None:
    """A full group admits nobody else, not even a static member that returns under a new id, as in Kafka."""
    if member_id not in group.members and len(group.members) >= call.config.consumer_max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "The consumer group has reached its maximum capacity of "
            f"{call.config.consumer_max_size} members.",
        )


def replace_static_member(
    draft: ConsumerDraft, predecessor: ConsumerMember, member_id: str
) -> ConsumerMember:
    """A static member returns, most often under a new id, to the partitions of its predecessor."""
    group_id, target = draft.group.group_id, draft.group.target_of(predecessor.member_id)
    draft.add(*member_tombstones(group_id, predecessor.member_id))
    member = replace(predecessor, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.add(
        member_metadata_record(group_id, member),
        GroupRecord(TargetAssignmentMemberKey(group_id, member_id), TargetAssignmentMemberValue(target)),
        member_assignment_record(group_id, member),
    )
    for gone in (predecessor.member_id, member_id):
        draft.timers += cancel_member_timers(group_id, gone)
    return member


def update_member(draft: ConsumerDraft, old: ConsumerMember, updated: ConsumerMember) -> Change:
    """Write what the request changes about the member itself; ``old`` may not be in the group yet."""
    if updated is old and old.member_id in draft.group.members:
        return Change.NOTHING
    group, regex = draft.group, updated.topic_regex
    change = Change.NOTHING
    if updated.topic_names != old.topic_names:
        change = Change.TOPICS
    if regex != old.topic_regex:
        if regex and regex not in group.subscribed_regexes:
            check_regex(regex)
        has_other_topics = regex in group.resolved if regex else bool(old.topic_regex)
        if change is Change.NOTHING:
            change = Change.TOPICS if has_other_topics else Change.UNRESOLVED
        unused = old.topic_regex
        if unused and unused in group.resolved and group.subscribed_regexes.get(unused) == 1:
            draft.add(regex_record(group.group_id, unused, None))
    is_new = old.member_id not in group.members
    if is_new or updated.to_metadata_value() != old.to_metadata_value():
        draft.add(member_metadata_record(group.group_id, updated))
    return change


def update_group_epoch(draft: ConsumerDraft, call: Call, *, topics_changed: bool) -> None:
    """Increase the group epoch if ``topics_changed``, or if there is other metadata of the topics."""
    metadata_hash = call.topics.metadata_hash(draft.group)
    if topics_changed or metadata_hash != draft.group.metadata_hash:
        draft.add(group_epoch_record(draft.group, metadata_hash))


def update_target(draft: ConsumerDraft, call: Call) -> None:
    """Bring the target assignment up to the group epoch, if that is due."""
    if is_due(draft.group, call.config.consumer_assignment_interval_ms, call.wall_ms):
        targets, metadata = build_target(
            draft.group, call.topics, call.config.consumer_assignors, call.wall_ms
        )
        draft.records += targets
        draft.group = replay_targets(draft.group, targets)
        draft.add(metadata)


def reconcile_member(
    draft: ConsumerDraft,
    member: ConsumerMember,
    owned: Set[TopicPartition] | None,
    call: Call,
    change: Change,
) -> ConsumerMember:
    """The member after one step towards its target; ``owned`` is what it reports to own, if it does."""
    group = draft.group
    is_reconciled = member.is_reconciled_to(group.assignment_epoch)
    if is_reconciled and change is Change.NOTHING:
        return member
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    reconciled = reconcile(
        member,
        target_epoch=group.assignment_epoch,
        target=group.target_of(member.member_id),
        subscribed=call.topics.subscribed_ids(member, group.resolved),
        subscription_changed=change is not Change.NOTHING,
        owned=owned,
        held_by_others=NO_PARTITIONS if is_reconciled else group.held_by_others(member.member_id),
    )
    if reconciled != member:
        draft.add(member_assignment_record(group.group_id, reconciled))
    return reconciled
