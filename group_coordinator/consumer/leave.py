"""Leaving a consumer group: for good (epoch -1), temporarily (-2, static members only), fenced or removed.

A member that leaves for good is deleted at once and the group epoch increases, so that the others get its
partitions with their next heartbeats. A static member that leaves temporarily keeps its partitions until its
session expires.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce

from pykraft.group_coordinator.consumer.heartbeat_validation import check_static_owner
from pykraft.group_coordinator.leave_request import build_leave_response, leaving_members
from pykraft.group_coordinator.migration.migration import downgrade_group, must_downgrade
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group
from pykraft.group_coordinator.state.group_records import (
    group_epoch_record,
    member_assignment_record,
    member_tombstones,
    regex_record,
)
from pykraft.group_coordinator.state.member import STATIC_LEAVE_EPOCH, MemberState
from pykraft.group_coordinator.state.records import NO_PARTITIONS
from pykraft.group_coordinator.state.result import AnyResult, Call, CoordinatorResult
from pykraft.group_coordinator.state.sessions import CancelTimer, TimerKey, TimerKind, cancel_member_timers
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)


def handle_leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, call: Call
) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
    member_id = request.member_id
    if request.instance_id is not None:
        check_static_owner(request.instance_id, member_id, group.static_member(request.instance_id))
    elif member_id not in group.members:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        return _leave_for_a_while(group, member_id, response)
    return replace(fence_member(group, member_id, call), response=response)


def fence_member(group: ConsumerGroup, member_id: str, call: Call) -> AnyResult:
    """Delete a member that left or has expired."""
    return fence_members(group, [member_id], call)


def fence_members(group: ConsumerGroup, member_ids: Collection[str], call: Call) -> AnyResult:
    """Delete members, and what only they subscribed to; the group epoch increases once, if there are any.

    If only members with the classic protocol remain, theirs becomes a classic group.
    """
    if not member_ids:
        return CoordinatorResult(None)
    if must_downgrade(group, member_ids, call):
        return downgrade_group(group, member_ids, call).result(None)
    records = [record for member_id in member_ids for record in member_tombstones(group.group_id, member_id)]
    left = reduce(replay_group, records, group)
    unused = [regex for regex in sorted(group.resolved) if regex not in left.subscribed_regexes]
    forgotten = [regex_record(group.group_id, regex, None) for regex in unused]
    left = reduce(replay_group, forgotten, left)
    records += [*forgotten, group_epoch_record(left, call.topics.metadata_hash(left))]
    timers = [change for one in member_ids for change in cancel_member_timers(group.group_id, one)]
    return CoordinatorResult(None, tuple(records), tuple(timers))


def remove_members(
    group: ConsumerGroup, request: LeaveGroupRequest, call: Call
) -> CoordinatorResult[LeaveGroupResponse]:
    """LeaveGroup: an admin removes members, by member id or by instance id. Each has its own error code."""
    identities = leaving_members(request, call.version)
    owners = [_find_leaving(group, identity) for identity in identities]
    found = [owner for owner in owners if isinstance(owner, str)]
    codes = [ErrorCode.NONE if isinstance(owner, str) else owner.code for owner in owners]
    result = fence_members(group, list(dict.fromkeys(found)), call)
    return replace(result, response=build_leave_response(identities, codes, call.version))


def _find_leaving(group: ConsumerGroup, identity: MemberIdentity) -> str | KafkaError:
    """The id of the member to remove, or the error for it."""
    instance_id, member_id = identity.group_instance_id, identity.member_id
    if instance_id is None:
        if member_id in group.members:
            return member_id
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    owner = group.static_member(instance_id)
    try:
        check_static_owner(instance_id, member_id or (owner.member_id if owner else ""), owner)
    except KafkaError as error:
        return error
    assert owner is not None
    return owner.member_id


def _leave_for_a_while(
    group: ConsumerGroup, member_id: str, response: ConsumerGroupHeartbeatResponse
) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
    # The member has stopped, so the partitions that it had to revoke are free. Its session keeps running.
    # What it keeps counts as assigned before any epoch, so that whoever returns in its place may commit.
    member = group.members[member_id]
    away = replace(
        member,
        epoch=STATIC_LEAVE_EPOCH,
        state=MemberState.STABLE,
        pending_revocation=NO_PARTITIONS,
        assignment_epochs=dict.fromkeys(member.assigned, 0),
    )
    records = (member_assignment_record(group.group_id, away),)
    timers = (CancelTimer(TimerKey(TimerKind.REBALANCE, group.group_id, member_id)),)
    return CoordinatorResult(response, records, timers)
