"""The effects of expired timers on groups of both protocols.

A timer is only a hint: the handler looks at the state again and does nothing if there is no longer a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykraft.group_coordinator.classic.rebalance import (
    ClassicDraft,
    join_deadline_passed,
    maybe_complete_join,
    maybe_prepare_rebalance,
    remove_member,
)
from pykraft.group_coordinator.consumer.leave import fence_member
from pykraft.group_coordinator.migration.members_in_classic_protocol import must_join_again
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import MemberState
from pykraft.group_coordinator.state.result import AnyResult, Call, CoordinatorResult
from pykraft.group_coordinator.state.sessions import (
    CLASSIC_MEMBER_TIMERS,
    SetTimer,
    TimerChange,
    TimerKey,
    TimerKind,
    cancel_member_timers,
)
from pykraft.group_coordinator.state.shard_state import Group, ShardState

_NOTHING = CoordinatorResult(None)


def handle_timer(state: ShardState, key: TimerKey, epoch: int, call: Call) -> AnyResult:
    match state.groups.get(key.group_id):
        case ConsumerGroup() as group:
            return _consumer_timer(group, key, epoch, call)
        case ClassicGroup() as group:
            return _classic_timer(ClassicDraft(group, call.config, call.wall_ms), key)
        case None:
            return _NOTHING


def _consumer_timer(group: ConsumerGroup, key: TimerKey, epoch: int, call: Call) -> AnyResult:
    member = group.members.get(key.member_id)
    if member is None:
        return _NOTHING
    match key.kind:
        case TimerKind.SESSION:
            is_over = True
        case TimerKind.REBALANCE:
            is_over = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch == epoch
        case TimerKind.MEMBER_JOIN:
            is_over = member.classic is not None and must_join_again(group, member)
        case TimerKind.MEMBER_SYNC:
            is_over = member.classic is not None
        case _:
            is_over = False
    return fence_member(group, key.member_id, call) if is_over else _NOTHING


def _classic_timer(draft: ClassicDraft, key: TimerKey) -> AnyResult:
    group, member_id = draft.group, key.member_id
    match key.kind:
        case TimerKind.SESSION:
            member = group.members.get(member_id)
            if member is None:
                return _NOTHING
            if member.awaiting_join or member.awaiting_sync:
                # A member sends no heartbeats while its request is parked here; the phase has its own
                # deadline.
                draft.restart_session(member)
                return CoordinatorResult(None, timers=tuple(draft.timers))
            remove_member(draft, member_id)
            maybe_prepare_rebalance(draft)
        case TimerKind.PENDING_MEMBER:
            if member_id not in group.pending_member_ids:
                return _NOTHING
            draft.change(pending_member_ids=group.pending_member_ids - {member_id})
            maybe_complete_join(draft)
        case TimerKind.JOIN_PHASE:
            if group.state is not ClassicState.PREPARING_REBALANCE:
                return _NOTHING
            join_deadline_passed(draft)
        case TimerKind.SYNC_PHASE:
            late = [member.member_id for member in group.iter_members() if not member.synced]
            waiting = group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
            if not late or not waiting:
                return _NOTHING
            for late_id in late:
                remove_member(draft, late_id)
            maybe_prepare_rebalance(draft)
        case TimerKind.REBALANCE | TimerKind.MEMBER_JOIN | TimerKind.MEMBER_SYNC:
            return _NOTHING
    return draft.result(None)


def iter_new_sessions(
    known: ShardState, current: Callable[[], ShardState], config_of: Callable[[str], GroupConfig]
) -> Iterator[tuple[TimerChange, ...]]:
    """A full session for each member of ``known``: none may expire because the coordinator was absent.

    Lazily, one member at a time, so that the caller can pause; members that have changed or left since are
    taken as of ``current()``. ``config_of`` returns the settings of a group by its id.
    """
    for group_id, known_group in known.groups.items():
        config = config_of(group_id)
        yield _join_phase(current().groups.get(group_id))
        for member_id in known_group.members:
            yield _new_session(current().groups.get(group_id), member_id, config)


def _join_phase(group: Group | None) -> tuple[TimerChange, ...]:
    """The time to join of a rebalance that begins with the coordinator."""
    if not isinstance(group, ClassicGroup) or group.state is not ClassicState.PREPARING_REBALANCE:
        return ()
    key = TimerKey(TimerKind.JOIN_PHASE, group.group_id)
    return (SetTimer(key, group.rebalance_timeout_ms, keep_running=True),)


def _new_session(group: Group | None, member_id: str, config: GroupConfig) -> tuple[TimerChange, ...]:
    match group:
        case ConsumerGroup() if member := group.members.get(member_id):
            key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
            if member.classic is not None:
                # It is told again to join, if it must, and then has its full time.
                others = cancel_member_timers(group.group_id, member_id, CLASSIC_MEMBER_TIMERS)
                return SetTimer(key, member.classic.session_timeout_ms), *others
            session = SetTimer(key, config.consumer_session_timeout_ms)
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                return (session,)
            rebalance = TimerKey(TimerKind.REBALANCE, group.group_id, member_id)
            return session, SetTimer(rebalance, member.rebalance_timeout_ms, member.epoch)
        case ClassicGroup() if classic_member := group.members.get(member_id):
            key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
            return (SetTimer(key, classic_member.session_timeout_ms),)
        case _:
            return ()
