"""ConsumerGroupHeartbeat: the request by which members join, stay alive and are reconciled (KIP-848).

In this order: refuse malformed requests; find the group, or create it, from a classic group if there is one;
find or create the member; then the steps of :mod:`.draft`.

This module never reads a clock and never looks at another group. Leaving is in :mod:`.leave`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from pykraft.group_coordinator.consumer.heartbeat_validation import (
    check_epoch,
    check_request,
    check_static_owner,
    is_full_request,
    owned_partitions,
)
from pykraft.group_coordinator.consumer.leave import handle_leave
from pykraft.group_coordinator.consumer.regex_refresh import needed_resolution
from pykraft.group_coordinator.migration.migration import PreparedUpgrade, Upgrade, upgrade_group
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import Partitions, by_topic
from pykraft.group_coordinator.state.result import Call, CoordinatorResult
from pykraft.group_coordinator.state.sessions import (
    CLASSIC_MEMBER_TIMERS,
    CancelTimer,
    SetTimer,
    TimerChange,
    TimerKey,
    TimerKind,
    cancel_member_timers,
)
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    HeartbeatAssignment,
)

LEAST_INTERVAL_MS = 1_000


class HeartbeatPace:
    """The interval for the next answer, from the number of members that this broker coordinates (KIP-848).

    A coordinator can tell a member something only when it asks: the interval is most of the time that a
    rebalance takes. What is configured has to suit thousands of members; a broker with few can be asked more
    often, so that their rebalances take a second, and not five.

    ``count_members`` may count more than these, and takes some microseconds: it is called again only when the
    number can have changed by an eighth.
    """

    def __init__(self, count_members: Callable[[], int]) -> None:
        self._count_members = count_members
        self._members = 0
        self._answers_left = 0

    def interval_ms(self, config: GroupConfig) -> int:
        """At most the group's own; as short as ``consumer_heartbeats_per_second`` of all members allow."""
        longest_ms, rate = config.consumer_heartbeat_interval_ms, config.consumer_heartbeats_per_second
        if not rate:
            return longest_ms
        if not self._answers_left:
            self._members = self._count_members()
            self._answers_left = 1 + self._members // 8
        self._answers_left -= 1
        return min(longest_ms, max(LEAST_INTERVAL_MS, self._members * 1_000 // rate))


def handle_consumer_heartbeat(
    state: ShardState,
    request: ConsumerGroupHeartbeatRequest,
    call: Call,
    prepared: PreparedUpgrade | None = None,
) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
    """``prepared``: the upgrade of the classic group that is joined, if that has very many members."""
    check_request(request, call)
    if request.member_epoch < JOIN_EPOCH:
        return handle_leave(_existing_group(state, request.group_id), request, call)

    if request.member_epoch == JOIN_EPOCH:
        draft, upgrade = _join_group(state, request.group_id, call, prepared)
    else:
        draft, upgrade = ConsumerDraft(_existing_group(state, request.group_id)), None
    before = draft.group
    check_size(before, request.member_id, call)
    old = _find_member(draft, request, call)
    # Of a member that takes another's place the own partitions are given up.
    needs_assignment = len(draft.group.members) < len(before.members)
    if upgrade is not None:
        needs_assignment |= upgrade.needs_assignment
    updated = _with_request(old, request, call)
    change = update_member(draft, old, updated)
    update_group_epoch(draft, call, topics_changed=change is Change.TOPICS or needs_assignment)
    update_target(draft, call)
    member = reconcile_member(
        draft, draft.group.members[updated.member_id], owned_partitions(request), call, change
    )

    session = TimerKey(TimerKind.SESSION, request.group_id, member.member_id)
    draft.timers.append(SetTimer(session, call.config.consumer_session_timeout_ms))
    if MemberState.UNREVOKED_PARTITIONS in (old.state, member.state):
        draft.timers.append(_rebalance_timer(request.group_id, old, member))
    if old.classic is not None:
        draft.timers += cancel_member_timers(request.group_id, member.member_id, CLASSIC_MEMBER_TIMERS)
    with_assignment = is_full_request(request) or member.assigned != old.assigned
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=call.heartbeat_interval_ms or call.config.consumer_heartbeat_interval_ms,
        assignment=_build_assignment(member.assigned) if with_assignment else None,
    )
    refresh_ms = call.config.consumer_regex_refresh_interval_ms
    return CoordinatorResult(
        response,
        tuple(draft.records),
        tuple(draft.timers),
        completions=() if upgrade is None else upgrade.completions,
        resolution=needed_resolution(before, draft.group, call.topics, refresh_ms, call.wall_ms),
    )


def _existing_group(state: ShardState, group_id: str) -> ConsumerGroup:
    group = state.consumer_group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return group


def _join_group(
    state: ShardState, group_id: str, call: Call, prepared: PreparedUpgrade | None
) -> tuple[ConsumerDraft, Upgrade | None]:
    """The group to join. It is created if there is none; a classic group becomes a consumer group."""
    match state.group(group_id):
        case ConsumerGroup() as group:
            return ConsumerDraft(group), None
        case ClassicGroup() as classic:
            upgrade = None if prepared is None else prepared.of(classic, call)
            upgrade = upgrade or upgrade_group(classic, call)
            return ConsumerDraft(upgrade.group, [*upgrade.records], [*upgrade.timers]), upgrade
        case None:
            return ConsumerDraft(ConsumerGroup(group_id)), None


def _find_member(draft: ConsumerDraft, request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerMember:
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
            # One that joined with the classic protocol cannot tell that it goes away.
            if predecessor.classic is not None or predecessor.epoch == STATIC_LEAVE_EPOCH:
                return replace_static_member(draft, predecessor, member_id)
            # The member itself joins again if it has not seen the answer.
            if predecessor.member_id != member_id:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                    f"because the instance id is owned by {predecessor.member_id} member.",
                )
    if not joins:
        check_epoch(member, member_id, request)
    return ConsumerMember(member_id) if member is None else member


def _with_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerMember:
    """The member with the fields of the request; null and -1 mean unchanged."""
    if _says_nothing(member, request, call):
        return member
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
        classic=None,
    )


def _says_nothing(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, call: Call) -> bool:
    """Whether the request is a sign of life and no more, as nearly all are."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.rack_id is None
        and request.server_assignor is None
        and request.instance_id in (None, member.instance_id)
        and member.client_id == call.client_id
        and member.client_host == call.client_host
        and member.classic is None
    )


def _rebalance_timer(group_id: str, old: ConsumerMember, member: ConsumerMember) -> TimerChange:
    """The rebalance timeout starts with each revocation, not with every heartbeat."""
    key = TimerKey(TimerKind.REBALANCE, group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        return CancelTimer(key)
    keep = old.state is member.state and old.epoch == member.epoch and old.held == member.held
    return SetTimer(key, member.rebalance_timeout_ms, member.epoch, keep_running=keep)


def _build_assignment(partitions: Partitions) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
