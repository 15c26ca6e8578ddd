"""JoinGroup: whether a member may join a classic group, under which id, and whether that starts a rebalance.

A dynamic member joins in two steps from version 4 on (KIP-394): first it is given an id, then it joins with
it, so that a client that did not receive the first answer leaves no unused member behind. A static member
(KIP-345) is recognized by its instance id and can take its place again without a rebalance.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.group_coordinator.classic.join_request import (
    SKIP_ASSIGNMENT_VERSION,
    check_join,
    make_member_id,
    needs_member_id,
    protocols_of,
    rebalance_timeout_of,
    unknown_member,
)
from pykraft.group_coordinator.classic.rebalance import (
    ClassicDraft,
    build_join_response,
    join_error,
    maybe_complete_join,
    maybe_prepare_rebalance,
    prepare_rebalance,
    remove_member,
    select_protocol,
)
from pykraft.group_coordinator.migration.members_in_classic_protocol import join_consumer_group
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_records import group_tombstones
from pykraft.group_coordinator.state.result import Call, CoordinatorResult, Parked, ParkKind
from pykraft.group_coordinator.state.sessions import TimerKind
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse


def handle_join_group(
    state: ShardState, request: JoinGroupRequest, call: Call
) -> CoordinatorResult[JoinGroupResponse]:
    check_join(request, call)
    draft = ClassicDraft(ClassicGroup(request.group_id), call.config, call.wall_ms)
    match state.group(request.group_id):
        case ClassicGroup() as group:
            draft.group = group
        case ConsumerGroup() as group:
            if not group.is_empty:
                return join_consumer_group(group, request, call)
            draft.records.extend(group_tombstones(group))
        case None if request.member_id:
            raise unknown_member(request)
    if not _has_room(draft.group, request.member_id, call):
        return draft.result(_refuse_for_size(draft, request.member_id))
    _check_protocols(draft.group, request)
    return draft.result(_join(draft, request, call))


def _check_protocols(group: ClassicGroup, request: JoinGroupRequest) -> None:
    """The member must have the group's protocol type and a protocol that all members support.

    A member that joins again counts among them with what it supported before, as in Kafka.
    """
    names = {protocol.name for protocol in request.protocols}
    fits = bool(request.protocol_type) and bool(names)
    if fits and group.state is not ClassicState.EMPTY:
        fits = group.protocol_type == request.protocol_type
        fits = fits and (group.is_empty or not names.isdisjoint(group.common_protocols))
    if not fits:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member has no protocol in common with the group."
        )


def _join(draft: ClassicDraft, request: JoinGroupRequest, call: Call) -> JoinGroupResponse | Parked:
    group, instance_id, member_id = draft.group, request.group_instance_id, request.member_id
    if member_id == "":
        new_id = make_member_id(request, call)
        if instance_id is not None:
            predecessor_id = group.static_member_id(instance_id)
            if predecessor_id is not None:
                return _replace_static_member(draft, group.members[predecessor_id], request, call)
            return _add_member(draft, new_id, request, call)
        if needs_member_id(request, call.version):
            draft.change(pending_member_ids=group.pending_member_ids | {new_id})
            draft.start_timer(TimerKind.PENDING_MEMBER, request.session_timeout_ms, new_id)
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        return _add_member(draft, new_id, request, call)
    if member_id in group.pending_member_ids and instance_id is None:
        draft.change(pending_member_ids=group.pending_member_ids - {member_id})
        draft.cancel_timer(TimerKind.PENDING_MEMBER, member_id)
        return _add_member(draft, member_id, request, call)
    if instance_id is not None:
        owner_id = group.static_member_id(instance_id)
        if owner_id is None:
            raise unknown_member(request)
        if owner_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID, f"Instance {instance_id} now belongs to member {owner_id}."
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(request)
    return _rejoin(draft, member, request, call)


def _add_member(
    draft: ClassicDraft, member_id: str, request: JoinGroupRequest, call: Call
) -> JoinGroupResponse | Parked:
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        awaiting_join=True,
    )
    if draft.group.initial_delay_left_ms is not None:
        draft.change(new_member_added=True)
    draft.change(protocol_type=request.protocol_type, leader_id=draft.group.leader_id or member_id)
    draft.put(member)
    draft.restart_session(member)
    maybe_prepare_rebalance(draft)
    return Parked(ParkKind.JOIN, draft.group.group_id, member_id)


def _rejoin(
    draft: ClassicDraft, member: ClassicMember, request: JoinGroupRequest, call: Call
) -> JoinGroupResponse | Parked:
    group = draft.group
    changed = protocols_of(request) != member.protocols
    match group.state:
        case ClassicState.EMPTY:
            raise unknown_member(request)
        case ClassicState.COMPLETING_REBALANCE if not changed:
            # The answer to the join was lost: repeat it.
            draft.restart_session(member)
            return build_join_response(group, member.member_id)
        case ClassicState.STABLE if not changed and member.member_id != group.leader_id:
            draft.restart_session(member)
            return build_join_response(group, member.member_id)
    draft.put(_updated(member, request))
    if group.state is ClassicState.PREPARING_REBALANCE:
        maybe_complete_join(draft)
    else:
        prepare_rebalance(draft)
    return Parked(ParkKind.JOIN, group.group_id, member.member_id)


def _replace_static_member(
    draft: ClassicDraft, old: ClassicMember, request: JoinGroupRequest, call: Call
) -> JoinGroupResponse | Parked:
    """A restarted static member takes its place again under a new id; its old id is fenced."""
    group_id, old_leader_id, new_id = (
        draft.group.group_id,
        draft.group.leader_id,
        make_member_id(request, call),
    )
    if old.awaiting_join:
        fenced = join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        draft.complete(ParkKind.JOIN, old.member_id, fenced)
    if old.awaiting_sync:
        error = SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
        draft.complete(ParkKind.SYNC, old.member_id, error)
    draft.cancel_timer(TimerKind.SESSION, old.member_id)
    draft.group = draft.group.without_member(old.member_id)
    new = replace(_updated(old, request), member_id=new_id, awaiting_sync=False)
    if old_leader_id == old.member_id:
        draft.change(leader_id=new_id)
    draft.put(new)
    draft.restart_session(new)
    if draft.group.state is ClassicState.STABLE and select_protocol(draft.group) == draft.group.protocol_name:
        draft.put(replace(new, awaiting_join=False))
        draft.write_group()
        response = build_join_response(draft.group, new_id)
        if call.version >= SKIP_ASSIGNMENT_VERSION:
            response.skip_assignment = response.leader == new_id
        else:
            # An old client that learns it is the leader would compute a new assignment; it must not.
            response.leader, response.members = old_leader_id or "", []
        return response
    maybe_prepare_rebalance(draft)
    return Parked(ParkKind.JOIN, group_id, new_id)


def _updated(member: ClassicMember, request: JoinGroupRequest) -> ClassicMember:
    """The member with what it may change by joining again; it stays with the client that joined first."""
    return replace(
        member,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        awaiting_join=True,
    )


def _has_room(group: ClassicGroup, member_id: str, call: Call) -> bool:
    """Whether ``group.max.size`` lets this member join.

    While members join again only those that have done so count: the last ones of a group that is too large do
    not get in. Ids that were only given out do not count.
    """
    member = group.members.get(member_id)
    match group.state:
        case ClassicState.EMPTY:
            return True
        case ClassicState.PREPARING_REBALANCE:
            if member is not None and member.awaiting_join:
                return True
            return group.tally.awaiting_join < call.config.max_size
        case _:
            return member is not None or len(group.members) < call.config.max_size


def _refuse_for_size(draft: ClassicDraft, member_id: str) -> JoinGroupResponse | Parked:
    """The group is full. The refused member is out of it, and the others no longer wait for it."""
    if member_id in draft.group.pending_member_ids:
        draft.change(pending_member_ids=draft.group.pending_member_ids - {member_id})
        draft.cancel_timer(TimerKind.PENDING_MEMBER, member_id)
        maybe_complete_join(draft)
    elif member_id in draft.group.members:
        remove_member(draft, member_id)
        maybe_complete_join(draft)
    return join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
