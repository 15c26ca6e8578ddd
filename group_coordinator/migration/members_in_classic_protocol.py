"""JoinGroup, SyncGroup and Heartbeat of the members of a consumer group that speak the classic protocol.

Such members are there while a group migrates (:mod:`.migration`). For them the member epoch is the
generation. Each joins for itself: JoinGroup takes it one step towards its target, as a heartbeat does for
others, and no request waits for another member. It is answered as a follower of a leader that does not exist,
so that it computes no assignment, and fetches its own with SyncGroup. A heartbeat tells it to join again
whenever there is another step for it to take: a newer target, partitions to revoke, or partitions that have
become free.

A member that does not join, or does not fetch its assignment, within its rebalance timeout is removed.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.group_coordinator.classic.join_request import (
    needs_member_id,
    protocols_of,
    rebalance_timeout_of,
    unknown_member,
)
from pykraft.group_coordinator.classic.rebalance import build_join_response, join_error
from pykraft.group_coordinator.consumer.draft import (
    Change,
    ConsumerDraft,
    check_size,
    reconcile_member,
    replace_static_member,
    update_group_epoch,
    update_member,
    update_target,
)
from pykraft.group_coordinator.consumer.heartbeat_validation import check_static_owner
from pykraft.group_coordinator.migration.migration import (
    downgrade_group,
    encode_assigned,
    find_partitions,
    must_downgrade_for,
)
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import ClassicMemberMetadata, Partitions
from pykraft.group_coordinator.state.result import Call, CoordinatorResult
from pykraft.group_coordinator.state.sessions import (
    CancelTimer,
    SetTimer,
    TimerChange,
    TimerKey,
    TimerKind,
    cancel_member_timers,
)
from pykraft.kafka_protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykraft.kafka_protocol.primitives import ProtocolError


def join_consumer_group(
    group: ConsumerGroup, request: JoinGroupRequest, call: Call
) -> CoordinatorResult[JoinGroupResponse]:
    """JoinGroup to a group that has members; an empty one becomes a classic group instead."""
    member_id = request.member_id or call.new_member_id
    check_size(group, member_id, call)
    _check_protocols(group, request)
    if needs_member_id(request, call.version):
        return CoordinatorResult(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    subscription = _decode_subscriptions(request)
    instance_id = request.group_instance_id
    replaced = None if instance_id is None else group.static_member(instance_id)
    draft = ConsumerDraft(group)
    old = _find_member(draft, replaced, request, member_id)
    if request.member_id and subscription.owned_partitions and old.member_id not in draft.group.members:
        # It was removed and does not know yet, so it may be reading what others have got since.
        raise unknown_member(request)
    updated = _with_request(old, request, subscription, call)
    change = update_member(draft, old, updated)
    update_group_epoch(draft, call, topics_changed=change is Change.TOPICS)
    owned = find_partitions(subscription.owned_partitions, call.topics)
    if replaced is not None and must_downgrade_for(group, replaced, call):
        if draft.group.assignment_epoch == draft.group.epoch:
            updated = _reconcile(draft, member_id, owned, call, change)
        classic = downgrade_group(group, [replaced.member_id], call, joining=updated)
        if classic.group.leader_id != member_id:
            return classic.result(_join_response(updated))
        response = build_join_response(classic.group, member_id)
        response.skip_assignment = True
        return classic.result(response)
    update_target(draft, call)
    member = _reconcile(draft, member_id, owned, call, change)
    draft.timers += cancel_member_timers(group.group_id, member_id)
    sync = TimerKey(TimerKind.MEMBER_SYNC, group.group_id, member_id)
    draft.timers += (_session(group, member), SetTimer(sync, member.rebalance_timeout_ms))
    return CoordinatorResult(_join_response(member), tuple(draft.records), tuple(draft.timers))


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """One of the protocols must be supported by all classic members, among them this one as it was."""
    names = {protocol.name for protocol in request.protocols}
    common = names.intersection(
        *(
            {name for name, _ in member.classic.supported_protocols}
            for member in group.members.values()
            if member.classic is not None
        )
    )
    if request.protocol_type != PROTOCOL_TYPE or not common:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {request.member_id}'s protocols are not supported.",
        )


def _decode_subscriptions(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription, which is the same with all protocols; the first counts.

    All must be readable, because a downgrade may choose any.
    """
    try:
        first, *_ = [decode_subscription(protocol.metadata)[0] for protocol in request.protocols]
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The embedded consumer protocol is malformed: {error}"
        ) from None
    return first


def _find_member(
    draft: ConsumerDraft, replaced: ConsumerMember | None, request: JoinGroupRequest, member_id: str
) -> ConsumerMember:
    """The member that joins: known, new, or static and ``replaced`` by one with a new id."""
    if request.group_instance_id is not None:
        if request.member_id:
            check_static_owner(request.group_instance_id, member_id, replaced)
        elif replaced is not None:
            return replace_static_member(draft, replaced, member_id)
    return draft.group.members.get(member_id) or ConsumerMember(member_id)


def _with_request(
    member: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, call: Call
) -> ConsumerMember:
    """The member as it joins; it cannot subscribe with a regular expression."""
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        classic=ClassicMemberMetadata(request.session_timeout_ms, protocols_of(request)),
    )


def _reconcile(
    draft: ConsumerDraft, member_id: str, owned: Partitions, call: Call, change: Change
) -> ConsumerMember:
    member = draft.group.members[member_id]
    if member.state is MemberState.UNKNOWN and owned:
        # FENCED_MEMBER_EPOCH would say it better, but is no error of JoinGroup.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member must abandon its partitions and rejoin.")
    return reconcile_member(draft, member, owned, call, change)


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_classic(member).supported_protocols[0][0],
        member_id=member.member_id,
    )


def sync_consumer_group(
    group: ConsumerGroup, request: SyncGroupRequest, call: Call
) -> CoordinatorResult[SyncGroupResponse]:
    """SyncGroup: the assignment of the member, as of its last JoinGroup."""
    member = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    must_rejoin = (
        member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS
    )
    if must_rejoin:
        error = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return CoordinatorResult(error, timers=(_join_deadline(group, member),))
    protocol_name, subscription = _classic(member).supported_protocols[0]
    for given, actual in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol_name, protocol_name)):
        if given is not None and given != actual:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member's protocol is {actual}, not {given}."
            )
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assigned(member.assigned, subscription, call.topics),
    )
    synced = CancelTimer(TimerKey(TimerKind.MEMBER_SYNC, group.group_id, member.member_id))
    return CoordinatorResult(response, timers=(synced, _session(group, member)))


def heartbeat_to_consumer_group(
    group: ConsumerGroup, request: HeartbeatRequest, call: Call
) -> CoordinatorResult[HeartbeatResponse]:
    """Heartbeat: whether the member must join again.

    If all members are classic (a downgrade is not allowed), nobody else keeps the assignment up to date.
    """
    member = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    draft = ConsumerDraft(group)
    if group.classic_members == len(group.members):
        update_group_epoch(draft, call, topics_changed=False)
        update_target(draft, call)
    must_rejoin = must_join_again(draft.group, member)
    join = TimerKey(TimerKind.MEMBER_JOIN, group.group_id, member.member_id)
    deadline = _join_deadline(group, member) if must_rejoin else CancelTimer(join)
    code = ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin else ErrorCode.NONE
    return CoordinatorResult(
        HeartbeatResponse(error_code=code), tuple(draft.records), (_session(group, member), deadline)
    )


def must_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a step for the classic ``member`` to take."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = group.target_of(member.member_id) - member.assigned
    return group.held_by_others(member.member_id).isdisjoint(missing)


def _check_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    """The classic member at its generation; else :class:`KafkaError`."""
    if instance_id is not None:
        check_static_owner(instance_id, member_id, group.static_member(instance_id))
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"No member {member_id} of the group speaks the classic protocol."
        )
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"The member is at generation {member.epoch}, not {generation}."
        )
    return member


def _classic(member: ConsumerMember) -> ClassicMemberMetadata:
    assert member.classic is not None
    return member.classic


def _session(group: ConsumerGroup, member: ConsumerMember) -> TimerChange:
    key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
    return SetTimer(key, _classic(member).session_timeout_ms)


def _join_deadline(group: ConsumerGroup, member: ConsumerMember) -> TimerChange:
    """The time to join starts when the member is first told, not with every heartbeat."""
    key = TimerKey(TimerKind.MEMBER_JOIN, group.group_id, member.member_id)
    return SetTimer(key, member.rebalance_timeout_ms, keep_running=True)
