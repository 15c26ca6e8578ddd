"""ConsumerGroupHeartbeat: the request by which members join, stay alive and are reconciled (KIP-848).

In this order: refuse malformed requests; find or create the member; increase the group epoch if the member
set, a subscription or the subscribed topics changed; bring the target assignment up to the group epoch; take
this member one step towards it. Every step yields records, which are applied to a working copy of the group,
so that the next step sees exactly what a replay will.

This module never reads a clock and never looks at another group. Leaving is in :mod:`.heartbeat_leave`.
"""

from __future__ import annotations

from dataclasses import field, replace

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.current_assignment import reconcile
from pykraft.group_coordinator.group import ConsumerGroup, replay_group
from pykraft.group_coordinator.group_records import (
    group_epoch_record,
    member_assignment_record,
    member_metadata_record,
    member_tombstones,
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
from pykraft.group_coordinator.result import Call, CoordinatorResult
from pykraft.group_coordinator.sessions import CancelTimer, SetTimer, TimerChange, TimerKey, TimerKind
from pykraft.group_coordinator.state import ShardState
from pykraft.group_coordinator.target_assignment import build_target
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
        return handle_leave(_existing_group(state, request.group_id), request)

    prelude: list[GroupRecord] = []
    if request.member_epoch == JOIN_EPOCH:
        group = _joinable_group(state, request.group_id, prelude)
    else:
        group = _existing_group(state, request.group_id)
    draft = _Draft(group)

    old = _find_member(draft, request, call)
    is_new = old.member_id not in draft.group.members
    updated = _with_request(old, request, call)
    subscription_changed = _update_member(draft, old, updated, is_new=is_new)
    _update_group_epoch(draft, call, subscription_changed)
    if draft.group.epoch > draft.group.assignment_epoch:
        draft.add(*build_target(draft.group, call.topics, call.config.consumer_assignors))
    member = _reconcile(draft, draft.group.members[updated.member_id], request)

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
    return CoordinatorResult(response, tuple(prelude + draft.records), tuple(draft.timers))


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
        elif predecessor is not None and predecessor.member_id != member_id:
            if predecessor.epoch != STATIC_LEAVE_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {request.instance_id} is still in use by member {predecessor.member_id}.",
                )
            return _replace_static_member(draft, predecessor, member_id)
    if not joins:
        check_epoch(member, member_id, request)
    if member is not None:
        if member.epoch == STATIC_LEAVE_EPOCH:
            # The same process returns under the same id.
            return replace(member, epoch=JOIN_EPOCH, previous_epoch=STATIC_LEAVE_EPOCH)
        return member
    assert joins, "an unknown member passed check_epoch"
    if len(group.members) >= call.config.consumer_max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum of {len(group.members)}.",
        )
    return ConsumerMember(member_id)


def _replace_static_member(draft: _Draft, predecessor: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member that left temporarily returns under a new id and gets its partitions again."""
    group_id, target = draft.group.group_id, draft.group.target_of(predecessor.member_id)
    draft.add(*member_tombstones(group_id, predecessor.member_id))
    member = replace(predecessor, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=STATIC_LEAVE_EPOCH)
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
        regex = request.subscribed_topic_regex or None
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


def _update_member(draft: _Draft, old: ConsumerMember, updated: ConsumerMember, *, is_new: bool) -> bool:
    """Write the changes of the member; returns whether they concern the assignment."""
    if is_new or updated.to_metadata_value() != old.to_metadata_value():
        draft.add(member_metadata_record(draft.group.group_id, updated))
    return (
        is_new
        or updated.topic_names != old.topic_names
        or updated.topic_regex != old.topic_regex
        or updated.server_assignor != old.server_assignor
    )


def _update_group_epoch(draft: _Draft, call: Call, subscription_changed: bool) -> None:
    metadata_hash = call.topics.metadata_hash(draft.group)
    if subscription_changed or metadata_hash != draft.group.metadata_hash:
        draft.add(group_epoch_record(draft.group, metadata_hash))


def _reconcile(
    draft: _Draft, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    group = draft.group
    owned = owned_partitions(request)
    if member.epoch == STATIC_LEAVE_EPOCH:
        member = replace(member, epoch=JOIN_EPOCH, previous_epoch=STATIC_LEAVE_EPOCH)
    if member.state is MemberState.UNKNOWN and owned:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member must abandon its partitions and rejoin.")
    if member.is_reconciled_to(group.assignment_epoch):
        held_by_others = NO_PARTITIONS
    else:
        held_by_others = group.held_by_others(member.member_id)
    reconciled = reconcile(
        member,
        target_epoch=group.assignment_epoch,
        target=group.target_of(member.member_id),
        owned=owned,
        held_by_others=held_by_others,
    )
    if reconciled != group.members[member.member_id]:
        draft.add(member_assignment_record(group.group_id, reconciled))
    return reconciled


def _rebalance_timer(group_id: str, old: ConsumerMember, member: ConsumerMember) -> TimerChange:
    """The rebalance timeout starts once per revocation, not with every heartbeat."""
    key = TimerKey(TimerKind.REBALANCE, group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        return CancelTimer(key)
    keep = old.state is MemberState.UNREVOKED_PARTITIONS and old.epoch == member.epoch
    return SetTimer(key, member.rebalance_timeout_ms, member.epoch, keep_running=keep)


def _build_assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
