"""Vote: standing for election, asking, granting, counting (Raft §5.2 and §5.4.1, KIP-595).

A vote is granted once an epoch, only while no leader of that epoch is known, only to a candidate whose log
is at least as up to date as ours by (last epoch, end offset), and it is durable before it is answered.
Unflushed records count on both sides: on ours that only makes us stricter, and on the candidate's they are
records it will serve if it wins, or lose together with its claim to lead.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.effects import Reply
from pykraft.quorum.messages import VoteRequest, VoteResponse
from pykraft.quorum.roles import Candidate, Unattached
from pykraft.quorum.state import CoreState
from pykraft.quorum.transitions import (
    maybe_adopt_epoch,
    transition_to_candidate,
    transition_to_leader,
    transition_to_unattached,
)


def stand_for_election(state: CoreState, now_ms: int) -> None:
    """Begin an election in the next epoch; a single voter has won it already."""
    transition_to_candidate(state, now_ms)
    if state.voters.majority == 1:
        transition_to_leader(state, now_ms)
        return
    ask_for_votes(state, now_ms)


def ask_for_votes(state: CoreState, now_ms: int) -> None:
    """Send Vote to every voter that is due to be asked."""
    role = state.role
    assert isinstance(role, Candidate)
    for node_id in [node_id for node_id, due_ms in role.retry_at_ms.items() if due_ms <= now_ms]:
        del role.retry_at_ms[node_id]
        state.send(
            node_id,
            VoteRequest(
                cluster_id=state.cluster_id,
                candidate=state.local,
                voter=state.voter_key(node_id),
                epoch=state.epoch,
                last_epoch=state.log.last_epoch,
                last_offset=state.log.end_offset,
            ),
        )


def handle_vote_request(state: CoreState, token: int, request: VoteRequest, now_ms: int) -> None:
    error = _refusal(state, request)
    granted = False
    if error is ErrorCode.NONE:
        granted = _may_grant(state, request)
        if granted and not (request.epoch == state.epoch and state.election.voted == request.candidate):
            transition_to_unattached(state, request.epoch, now_ms, voted=request.candidate)
        elif request.epoch > state.epoch:
            transition_to_unattached(state, request.epoch, now_ms)
    state.emit(
        Reply(
            token,
            VoteResponse(state.cluster_id, state.local, error, state.epoch, state.leader_id, granted),
        )
    )


def _refusal(state: CoreState, request: VoteRequest) -> ErrorCode:
    if request.cluster_id != state.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not request.voter.matches(state.local):
        return ErrorCode.INVALID_VOTER_KEY
    if not state.is_voter:
        return ErrorCode.INCONSISTENT_VOTER_SET
    if request.last_offset < 0 or not 0 <= request.last_epoch < request.epoch:
        return ErrorCode.INVALID_REQUEST
    if request.candidate.id == state.local.id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _may_grant(state: CoreState, request: VoteRequest) -> bool:
    if (request.last_epoch, request.last_offset) < (state.log.last_epoch, state.log.end_offset):
        return False
    if request.epoch > state.epoch:
        return True
    # Asked again within an epoch we answer the same candidate the same way, by the same rule.
    election = state.election
    return (
        isinstance(state.role, Unattached)
        and election.leader_id is None
        and election.voted in (None, request.candidate)
    )


def handle_vote_response(state: CoreState, voter_id: int, response: VoteResponse, now_ms: int) -> None:
    if maybe_adopt_epoch(state, response.epoch, response.leader_id, now_ms):
        return
    role = state.role
    if not isinstance(role, Candidate):
        return
    if response.error is not ErrorCode.NONE or response.epoch < state.epoch:
        role.retry_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms
    elif response.vote_granted:
        role.granted.add(voter_id)
        if len(role.granted) >= state.voters.majority:
            transition_to_leader(state, now_ms)
    else:
        role.refused.add(voter_id)
        _maybe_give_up(state, role, now_ms)


def handle_vote_failure(state: CoreState, voter_id: int, now_ms: int) -> None:
    role = state.role
    assert isinstance(role, Candidate)
    role.retry_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms
    role.refused.add(voter_id)
    _maybe_give_up(state, role, now_ms)


def _maybe_give_up(state: CoreState, role: Candidate, now_ms: int) -> None:
    """Back off as soon as those that refused or cannot be reached leave no majority.

    Two candidates that split the votes while a third voter is down would otherwise sit out a whole election
    timeout. Votes are asked for on, and one that still comes wins.
    """
    if not role.lost and len(role.refused - role.granted) > len(state.voters) - state.voters.majority:
        _begin_backoff(state, role, now_ms)


def run_candidate_timers(state: CoreState, role: Candidate, now_ms: int) -> None:
    if now_ms >= role.deadline_ms:
        if role.lost:
            stand_for_election(state, now_ms)
            return
        _begin_backoff(state, role, now_ms)
    ask_for_votes(state, now_ms)


def candidate_deadline_ms(role: Candidate) -> int:
    return min(role.deadline_ms, *role.retry_at_ms.values()) if role.retry_at_ms else role.deadline_ms


def _begin_backoff(state: CoreState, role: Candidate, now_ms: int) -> None:
    role.lost = True
    role.deadline_ms = now_ms + state.random_backoff_ms(role.retries)
