"""The rebalance of a classic group: all members join, a generation begins, its leader assigns partitions.

A draft collects the effects of one request or timer. The functions below move its group from state to state:

* EMPTY, STABLE, COMPLETING --prepare--> PREPARING: members must join again; those that wait for an assignment
  are told so;
* PREPARING --complete--> COMPLETING: all members joined or the time is up; the leader gets the member list;
* PREPARING --complete--> EMPTY: no member is left; the empty group is written to the log;
* COMPLETING --> STABLE happens in :mod:`.sync`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace

from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.records import GroupMetadataKey, GroupRecord
from pykraft.group_coordinator.state.result import A, Completion, CoordinatorResult, Parked, ParkKind
from pykraft.group_coordinator.state.sessions import CancelTimer, SetTimer, TimerChange, TimerKey, TimerKind
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from pykraft.lazy_dataclass import dataclass

_ABSENT_CHECK_MS = 1_000
"""The least interval of checks of a group whose members are all static and away."""


@dataclass(slots=True)
class ClassicDraft:
    """The effects of one request or timer on one classic group."""

    group: ClassicGroup
    config: GroupConfig
    wall_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)

    def result(self, response: A | Parked) -> CoordinatorResult[A]:
        group = self.group
        trace = group.size or group.generation or self.records
        return CoordinatorResult(
            response,
            tuple(self.records),
            tuple(self.timers),
            tuple(self.completions),
            groups=(group,) if trace else (),
            forgotten=() if trace else (group.group_id,),
        )

    def change(self, **changes: object) -> None:
        self.group = replace(self.group, **changes)  # type: ignore[arg-type]

    def put(self, member: ClassicMember) -> None:
        self.group = self.group.with_member(member)

    def put_all(self, members: Iterable[ClassicMember]) -> None:
        self.group = self.group.with_members(members)

    def complete(self, kind: ParkKind, member_id: str, response: Message) -> None:
        self.completions.append(Completion(Parked(kind, self.group.group_id, member_id), response))

    def start_timer(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        self.timers.append(SetTimer(TimerKey(kind, self.group.group_id, member_id), delay_ms))

    def cancel_timer(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(CancelTimer(TimerKey(kind, self.group.group_id, member_id)))

    def restart_session(self, member: ClassicMember) -> None:
        self.start_timer(TimerKind.SESSION, member.session_timeout_ms, member.member_id)

    def write_group(self) -> None:
        """Add a record of the group as it is now."""
        self.records.append(GroupRecord(GroupMetadataKey(self.group.group_id), self.group.to_value()))

    def transition_to(self, state: ClassicState) -> None:
        self.change(state=state, state_timestamp_ms=self.wall_ms)


def prepare_rebalance(draft: ClassicDraft) -> None:
    """Start a rebalance: all members must join again. A group that was empty waits for more of them."""
    group = draft.group
    assert group.state is not ClassicState.PREPARING_REBALANCE
    if group.state is ClassicState.COMPLETING_REBALANCE:
        _abandon_sync(draft)
    was_empty = group.state is ClassicState.EMPTY
    draft.transition_to(ClassicState.PREPARING_REBALANCE)
    timeout_ms = draft.group.rebalance_timeout_ms
    if was_empty and draft.group.members:
        delay_ms = draft.config.initial_rebalance_delay_ms
        draft.change(initial_delay_left_ms=max(timeout_ms - delay_ms, 0), new_member_added=False)
        draft.start_timer(TimerKind.JOIN_PHASE, delay_ms)
        return
    draft.start_timer(TimerKind.JOIN_PHASE, timeout_ms)
    maybe_complete_join(draft)


def maybe_prepare_rebalance(draft: ClassicDraft) -> None:
    """After a change of the member set: start a rebalance, or check whether the current one can complete."""
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        maybe_complete_join(draft)
    else:
        prepare_rebalance(draft)


def maybe_complete_join(draft: ClassicDraft) -> None:
    group = draft.group
    if group.state is not ClassicState.PREPARING_REBALANCE or group.pending_member_ids:
        return
    if group.initial_delay_left_ms is not None and group.members:
        return
    if group.tally.awaiting_join == len(group.members):
        complete_join(draft)


def join_deadline_passed(draft: ClassicDraft) -> None:
    """The initial delay is over (and is repeated if a new member joined), or the time to join is up."""
    left_ms = draft.group.initial_delay_left_ms
    if left_ms is not None and draft.group.new_member_added and left_ms > 0:
        delay_ms = min(draft.config.initial_rebalance_delay_ms, left_ms)
        draft.change(initial_delay_left_ms=left_ms - delay_ms, new_member_added=False)
        draft.start_timer(TimerKind.JOIN_PHASE, delay_ms)
        return
    complete_join(draft)


def complete_join(draft: ClassicDraft) -> None:
    """End the join phase: remove members that did not join (static ones may be away), begin a generation."""
    for member in draft.group.iter_members():
        if not member.awaiting_join and member.instance_id is None:
            remove_member(draft, member.member_id)
    group = draft.group
    joined = [member for member in group.iter_members() if member.awaiting_join]
    if group.members and not joined:
        draft.start_timer(TimerKind.JOIN_PHASE, max(group.rebalance_timeout_ms, _ABSENT_CHECK_MS))
        return
    draft.cancel_timer(TimerKind.JOIN_PHASE)
    draft.change(generation=group.generation + 1, initial_delay_left_ms=None, new_member_added=False)
    if not joined:
        draft.change(protocol_name=None, leader_id=None)
        draft.transition_to(ClassicState.EMPTY)
        draft.write_group()
        return
    leader = group.members.get(group.leader_id or "")
    if leader is None or not leader.awaiting_join:
        draft.change(leader_id=joined[0].member_id)
    draft.change(protocol_name=select_protocol(draft.group))
    draft.transition_to(ClassicState.COMPLETING_REBALANCE)
    draft.start_timer(TimerKind.SYNC_PHASE, draft.group.rebalance_timeout_ms)
    draft.put_all([member.joined() for member in joined])
    for member in joined:
        draft.restart_session(member)
        draft.complete(ParkKind.JOIN, member.member_id, build_join_response(draft.group, member.member_id))


def remove_member(draft: ClassicDraft, member_id: str) -> None:
    """Remove a member; its waiting request is answered with UNKNOWN_MEMBER_ID."""
    member = draft.group.members[member_id]
    if member.awaiting_join:
        draft.complete(ParkKind.JOIN, member_id, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
    if member.awaiting_sync:
        error = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        draft.complete(ParkKind.SYNC, member_id, error)
    draft.cancel_timer(TimerKind.SESSION, member_id)
    draft.group = draft.group.without_member(member_id)


def select_protocol(group: ClassicGroup) -> str:
    """Each member votes for its preferred one of the protocols that all members support."""
    common = group.common_protocols
    votes = Counter(
        next(name for name, _ in member.protocols if name in common) for member in group.members.values()
    )
    return max(sorted(votes), key=lambda name: votes[name])


def build_join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The current generation as answered to ``member_id``; only the leader gets the list of members."""
    members = []
    if member_id == group.leader_id:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_for(group.protocol_name),
            )
            for member in group.iter_members()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=members,
    )


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="", member_id=member_id)


def _abandon_sync(draft: ClassicDraft) -> None:
    draft.cancel_timer(TimerKind.SYNC_PHASE)
    for member in draft.group.iter_members():
        if member.awaiting_sync:
            error = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            draft.complete(ParkKind.SYNC, member.member_id, error)
    draft.put_all(
        [
            replace(member, awaiting_sync=False, synced=True, assignment=b"")
            for member in draft.group.iter_members()
        ]
    )
