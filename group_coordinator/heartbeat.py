"""ConsumerGroupHeartbeat: the request by which members join, stay alive and are reconciled (KIP-848).

In this order: refuse malformed requests; find or create the member; increase the group epoch if a
subscription or the subscribed topics changed; bring the target assignment up to the group epoch, if that is
due; take this member one step towards it. Every step yields records, which are applied to a working copy of
the group, so that the next step sees exactly what a replay will.

This module never reads a clock and never looks at another group. Leaving is in :mod:`.heartbeat_leave`.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.current_assignment import reconcile
from pykraft.group_coordinator.group import ConsumerGroup, replay_group
from pykraft.group_coordinator.group_records import (
    group_epoch_record,
    member_assignment_record,
    member_metadata_record,
    member_tombstones,
    regex_record,
)
from pykraft.group_coordinator.heartbeat_leave import handle_leave
from pykraft.group_coordinator.heartbeat_validation import (
    check_epoch,
    check_request,
    check_static_owner,
    is_full_request,
    owned_partitions,
)
from pykraft.group_coordinator.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from pykraft.group_coordinator.records import (
    NO_PARTITIONS,
    GroupMetadataKey,
    GroupRecord,
    Partitions,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    by_topic,
)
from pykraft.group_coordinator.regex_refresh import check_regex, needed_resolution
from pykraft.group_coordinator.result import Call, CoordinatorResult
from pykraft.group_coordinator.sessions import CancelTimer, SetTimer, TimerChange, TimerKey, TimerKind
from pykraft.group_coordinator.state import ShardState
from pykraft.group_coordinator.target_assignment import build_target, is_due
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from pykraft.lazy_dataclass import dataclass


@dataclass(slots=True)
class _Draft:
    """A working copy of the group and the records that led to it."""

    group: ConsumerGroup
    records: list[GroupRecord] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)

    def add(self, *records: GroupRecord) -> None:
        for record in records:
            self.records.append(record)
            self.group = replay_group(self.group, record)


def handle_consumer_heartbeat(
    state: ShardState, request: ConsumerGroupHeartbeatRequest, call: Call
) -> CoordinatorResult:
    check_request(request, call)
    if request.member_epoch < JOIN_EPOCH:
        return handle_leave(_existing_group(state, request.group_id), request, call)

    prelude: list[GroupRecord] = []
    if request.member_epoch == JOIN_EPOCH:
        group = _joinable_group(state, request.group_id, prelude)
    else:
        group = _existing_group(state, request.group_id)
    draft = _Draft(group)
    _check_size(group, request, call)
    old = _find_member(draft, request, call)
    is_new = old.member_id not in draft.group.members
    updated = _with_request(old, request, call)
    change = _update_member(draft, old, updated, is_new=is_new)
    _update_group_epoch(draft, call, change)
    if is_due(draft.group, call.config.consumer_assignment_interval_ms, call.wall_ms):
        draft.add(*build_target(draft.group, call.topics, call.config.consumer_assignors, call.wall_ms))
    member = _reconcile(draft, draft.group.members[updated.member_id], request, call, change)

    session = TimerKey(TimerKind.SESSION, request.group_id, member.member_id)
    draft.timers.append(SetTimer(session, call.config.consumer_session_timeout_ms))
    draft.timers.append(_rebalance_timer(request.group_id, old, member))
    with_assignment = is_full_request(request) or member.assigned != old.assigned
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=call.config.consumer_heartbeat_interval_ms,
        assignment=_build_assignment(member.assigned) if with_assignment else None,
    )
    refresh_ms = call.config.consumer_regex_refresh_interval_ms
    return CoordinatorResult(
        response,
        tuple(prelude + draft.records),
        tuple(draft.timers),
        resolution=needed_resolution(group, draft.group, call.topics, refresh_ms, call.wall_ms),
    )


def _existing_group(state: ShardState, group_id: str) -> ConsumerGroup:
    group = state.consumer_group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return group


def _joinable_group(state: ShardState, group_id: str, prelude: list[GroupRecord]) -> ConsumerGroup:
    """The group to join; created if it does not exist, or if it is an empty classic group."""
    match state.groups.get(group_id):
        case ConsumerGroup() as group:
            return group
        case ClassicGroup() as classic:
            if classic.size:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a classic group with members."
                )
            prelude.append(GroupRecord(GroupMetadataKey(group_id), None))
            return ConsumerGroup(group_id)
        case None:
            return ConsumerGroup(group_id)


def _check_size(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, call: Call) -> None:
    """A full group admits nobody else, not even a static member that returns under a new id, as in Kafka."""
    if request.member_id not in group.members and len(group.members) >= call.config.consumer_max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "The consumer group has reached its maximum capacity of "
            f"{call.config.consumer_max_size} members.",
        )


def _find_member(draft: _Draft, request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerMember:
    """The member that sent the request: known, static and returning under a new id, or new."""
    group = draft.group
    joins = request.member_epoch == JOIN_EPOCH
    member_id = request.member_id or call.new_member_id
    member = group.members.get(member_id)
    predecessor = None
    if request.instance_id is not None:
        predecessor = group.static_member(request.instance_id)
        if not joins:
            check_static_owner(request.instance_id, member_id, predecessor)
        elif predecessor is not None:
            if predecessor.epoch != STATIC_LEAVE_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                    f"because the instance id is owned by {predecessor.member_id} member.",
                )
            return _replace_static_member(draft, predecessor, member_id)
    if not joins:
        check_epoch(member, member_id, request)
    return ConsumerMember(member_id) if member is None else member


def _replace_static_member(draft: _Draft, predecessor: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member that left temporarily returns, most often under a new id, with its partitions."""
    group_id, target = draft.group.group_id, draft.group.target_of(predecessor.member_id)
    draft.add(*member_tombstones(group_id, predecessor.member_id))
    member = replace(predecessor, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.add(
        member_metadata_record(group_id, member),
        GroupRecord(TargetAssignmentMemberKey(group_id, member_id), TargetAssignmentMemberValue(target)),
        member_assignment_record(group_id, member),
    )
    for kind in (TimerKind.SESSION, TimerKind.REBALANCE):
        draft.timers.append(CancelTimer(TimerKey(kind, group_id, predecessor.member_id)))
    return member


def _with_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerMember:
    """The member with the fields of the request; null and -1 mean unchanged."""
    names, regex = member.topic_names, member.topic_regex
    if request.subscribed_topic_names is not None:
        names = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topic_names=names,
        topic_regex=regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
    )


class _Change(Enum):
    """What a heartbeat changes in the subscription of its member."""

    NOTHING = 0
    UNRESOLVED = 1
    """Its regular expression, for one whose topics are not known yet: the group epoch moves when they are."""
    TOPICS = 2


def _update_member(draft: _Draft, old: ConsumerMember, updated: ConsumerMember, *, is_new: bool) -> _Change:
    """Write what the heartbeat changes about the member itself."""
    group, regex = draft.group, updated.topic_regex
    change = _Change.NOTHING
    if updated.topic_names != old.topic_names:
        change = _Change.TOPICS
    if regex != old.topic_regex:
        if regex and regex not in group.subscribed_regexes:
            check_regex(regex)
        has_other_topics = regex in group.resolved if regex else bool(old.topic_regex)
        if change is _Change.NOTHING:
            change = _Change.TOPICS if has_other_topics else _Change.UNRESOLVED
        unused = old.topic_regex
        if unused and unused in group.resolved and group.subscribed_regexes.get(unused) == 1:
            draft.add(regex_record(group.group_id, unused, None))
    if is_new or updated.to_metadata_value() != old.to_metadata_value():
        draft.add(member_metadata_record(group.group_id, updated))
    return change


def _update_group_epoch(draft: _Draft, call: Call, change: _Change) -> None:
    metadata_hash = call.topics.metadata_hash(draft.group)
    if change is _Change.TOPICS or metadata_hash != draft.group.metadata_hash:
        draft.add(group_epoch_record(draft.group, metadata_hash))


def _reconcile(
    draft: _Draft, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, call: Call, change: _Change
) -> ConsumerMember:
    group = draft.group
    is_reconciled = member.is_reconciled_to(group.assignment_epoch)
    if is_reconciled and change is _Change.NOTHING:
        return member
    owned = owned_partitions(request)
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
        subscription_changed=change is not _Change.NOTHING,
        owned=owned,
        held_by_others=NO_PARTITIONS if is_reconciled else group.held_by_others(member.member_id),
    )
    if reconciled != member:
        draft.add(member_assignment_record(group.group_id, reconciled))
    return reconciled


def _rebalance_timer(group_id: str, old: ConsumerMember, member: ConsumerMember) -> TimerChange:
    """The rebalance timeout starts with each revocation, not with every heartbeat."""
    key = TimerKey(TimerKind.REBALANCE, group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        return CancelTimer(key)
    keep = old.state is member.state and old.epoch == member.epoch and old.held == member.held
    return SetTimer(key, member.rebalance_timeout_ms, member.epoch, keep_running=keep)


def _build_assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
