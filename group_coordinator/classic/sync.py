"""SyncGroup, Heartbeat and LeaveGroup of a classic group.

SyncGroup: the leader sends the assignment, which is written to the log before any member receives it; the
others wait for it. Heartbeat: its answer tells members of a rebalance. LeaveGroup: from version 3 on several
members at once, by member id or by instance id.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.group_coordinator.classic.rebalance import (
    ClassicDraft,
    maybe_prepare_rebalance,
    remove_member,
)
from pykraft.group_coordinator.consumer.leave import remove_members
from pykraft.group_coordinator.leave_request import build_leave_response, leaving_members
from pykraft.group_coordinator.migration.members_in_classic_protocol import (
    heartbeat_to_consumer_group,
    sync_consumer_group,
)
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.names import check_group_id
from pykraft.group_coordinator.state.result import Call, CoordinatorResult, Parked, ParkKind
from pykraft.group_coordinator.state.sessions import TimerKind
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

_NAMED_PROTOCOL_VERSION = 5


def check_sync(request: SyncGroupRequest, version: int) -> None:
    """Check the rules that need only the request."""
    if version >= _NAMED_PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"SyncGroup version {version} must name its protocol and the type of it.",
        )
    check_group_id(request.group_id)


def handle_sync_group(
    state: ShardState, request: SyncGroupRequest, call: Call
) -> CoordinatorResult[SyncGroupResponse]:
    if (consumer_group := state.consumer_group(request.group_id)) is not None:
        return sync_consumer_group(consumer_group, request, call)
    group = _group(state, request.group_id)
    member = check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    for given, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if given is not None and given != actual:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The group's protocol is {actual}, not {given}."
            )
    draft = ClassicDraft(group, call.config, call.wall_ms)
    draft.restart_session(member)
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The group is rebalancing.")
        case ClassicState.COMPLETING_REBALANCE:
            return draft.result(_sync_while_completing(draft, member, request))
        case _:
            draft.put(replace(member, synced=True))
            _maybe_end_sync_phase(draft)
            return draft.result(_sync_response(group, member))


def _sync_while_completing(
    draft: ClassicDraft, member: ClassicMember, request: SyncGroupRequest
) -> SyncGroupResponse | Parked:
    draft.put(replace(member, awaiting_sync=True, synced=True))
    if member.member_id == draft.group.leader_id:
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        waiting = [other.member_id for other in draft.group.iter_members() if other.awaiting_sync]
        draft.put_all(
            [other.assigned(assignments.get(other.member_id, b"")) for other in draft.group.members.values()]
        )
        draft.transition_to(ClassicState.STABLE)
        draft.write_group()
        for member_id in waiting:
            response = _sync_response(draft.group, draft.group.members[member_id])
            draft.complete(ParkKind.SYNC, member_id, response)
            draft.restart_session(draft.group.members[member_id])
    _maybe_end_sync_phase(draft)
    return Parked(ParkKind.SYNC, draft.group.group_id, member.member_id)


def _maybe_end_sync_phase(draft: ClassicDraft) -> None:
    if not draft.group.tally.unsynced:
        draft.cancel_timer(TimerKind.SYNC_PHASE)


def _sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def handle_heartbeat(
    state: ShardState, request: HeartbeatRequest, call: Call
) -> CoordinatorResult[HeartbeatResponse]:
    if (consumer_group := state.consumer_group(request.group_id)) is not None:
        return heartbeat_to_consumer_group(consumer_group, request, call)
    group = _group(state, request.group_id)
    member = check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    draft = ClassicDraft(group, call.config, call.wall_ms)
    draft.restart_session(member)
    rebalancing = group.state is ClassicState.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
    return CoordinatorResult(HeartbeatResponse(error_code=code), timers=tuple(draft.timers))


def handle_leave_group(
    state: ShardState, request: LeaveGroupRequest, call: Call
) -> CoordinatorResult[LeaveGroupResponse]:
    check_group_id(request.group_id)
    if (consumer_group := state.consumer_group(request.group_id)) is not None:
        return remove_members(consumer_group, request, call)
    identities = leaving_members(request, call.version)
    group = state.classic_group(request.group_id)
    draft = ClassicDraft(group or ClassicGroup(request.group_id), call.config, call.wall_ms)
    codes = [_leave(draft, identity) for identity in identities]
    if any(code is ErrorCode.NONE for code in codes) and draft.group.state is not ClassicState.EMPTY:
        maybe_prepare_rebalance(draft)
    response = build_leave_response(identities, codes, call.version)
    return CoordinatorResult(response) if group is None else draft.result(response)


def _leave(draft: ClassicDraft, identity: MemberIdentity) -> ErrorCode:
    """Remove one member from the draft; one rebalance follows after all of them."""
    group, member_id = draft.group, identity.member_id
    if identity.group_instance_id is not None and member_id not in group.pending_member_ids:
        owner_id = group.static_member_id(identity.group_instance_id)
        if owner_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member_id != owner_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = owner_id
    if member_id in group.pending_member_ids:
        draft.change(pending_member_ids=group.pending_member_ids - {member_id})
        draft.cancel_timer(TimerKind.PENDING_MEMBER, member_id)
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    remove_member(draft, member_id)
    return ErrorCode.NONE


def check_member(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMember:
    """The member, if it is in the group, not fenced and at its generation; else :class:`KafkaError`."""
    if not member_id:
        # librdkafka sends such requests for a moment after its session has expired. Without a member id it
        # cannot have been replaced by another; if it were told that it is fenced, as Kafka does, a static
        # consumer would stop.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member has no id yet.")
    if instance_id is not None:
        owner_id = group.static_member_id(instance_id)
        if owner_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID, f"Instance {instance_id} now belongs to member {owner_id}."
            )
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
    if generation != group.generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"The group is at generation {group.generation}, not {generation}."
        )
    return member


def _group(state: ShardState, group_id: str) -> ClassicGroup:
    check_group_id(group_id)
    group = state.classic_group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no such member.")
    return group
