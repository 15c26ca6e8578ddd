"""Leaving a consumer group: for good (-1), for a while (-2, static members only), or by being fenced.

Whoever goes for good is erased at once and the group epoch moves, so that the others share the partitions at
their next heartbeats. A static member that goes for a while keeps what it has until its session ends.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.group_records import (
    group_epoch_record,
    member_assignment_record,
    member_tombstones,
)
from pykraft.group_coordinator.heartbeat_validation import check_static_owner
from pykraft.group_coordinator.member import STATIC_LEAVE_EPOCH, MemberState
from pykraft.group_coordinator.records import NO_PARTITIONS
from pykraft.group_coordinator.result import CoordinatorResult
from pykraft.group_coordinator.sessions import CancelTimer, TimerKey, TimerKind
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle_leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> CoordinatorResult:
    member_id = request.member_id
    if request.instance_id is not None:
        check_static_owner(request.instance_id, member_id, group.static_member(request.instance_id))
    if member_id not in group.members:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        return _leave_for_a_while(group, member_id, response)
    return replace(fence_member(group, member_id), response=response)


def fence_member(group: ConsumerGroup, member_id: str) -> CoordinatorResult:
    """Erase a member, whether it left or was given up on."""
    records = (*member_tombstones(group.group_id, member_id), group_epoch_record(group, group.metadata_hash))
    timers = tuple(
        CancelTimer(TimerKey(kind, group.group_id, member_id))
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE)
    )
    return CoordinatorResult(None, records, timers)


def _leave_for_a_while(
    group: ConsumerGroup, member_id: str, response: ConsumerGroupHeartbeatResponse
) -> CoordinatorResult:
    # What it was still to revoke is free now: it has stopped. The session goes on running.
    away = replace(
        group.members[member_id],
        epoch=STATIC_LEAVE_EPOCH,
        state=MemberState.STABLE,
        pending_revocation=NO_PARTITIONS,
    )
    records = (member_assignment_record(group.group_id, away),)
    timers = (CancelTimer(TimerKey(TimerKind.REBALANCE, group.group_id, member_id)),)
    return CoordinatorResult(response, records, timers)
