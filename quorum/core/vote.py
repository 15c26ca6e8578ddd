"""Vote: pre-votes, elections, granting and counting (Raft §5.2, §5.4.1; KIP-996).

A vote is granted once an epoch, only while no leader of that epoch is known, only to a candidate whose log is
at least as up to date as ours by (last epoch, end offset), and it is durable before it is answered. Unflushed
records count on both sides: on ours that only makes us stricter, and the candidate will serve its own if it
wins, or lose them together with its candidacy.

A replica that does not know that it is a voter still votes, also for a candidate that it does not know as a
voter: the candidate may hold a newer voter set and need this vote for its majority (KIP-853; Raft thesis,
4.1). Among fixed voters there is no newer set, and a replica outside it is not asked; but a candidate that
asks by directory id has a set from the log (:mod:`.kraft_upgrade`).

A replica that may have lost what it acknowledged grants nothing (:mod:`.recovery`).

A pre-vote changes nothing at the voter that is asked, whatever its epoch, and raises no epoch: so a voter
that cannot hear its leader, or any voter, can ask forever without disturbing the others.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.effects import Reply
from pykraft.quorum.core.leader_search import search_leader
from pykraft.quorum.core.messages import VoteRequest, VoteResponse
from pykraft.quorum.core.refusals import refuse_sender
from pykraft.quorum.core.roles import Candidate, Follower, Leader, Poll, Prospective, Unattached
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.transitions import (
    maybe_adopt_epoch,
    transition_to_candidate,
    transition_to_leader,
    transition_to_prospective,
    transition_to_unattached,
)


def seek_election(state: CoreState, now_ms: int) -> None:
    """Ask first whether a majority would grant its votes."""
    transition_to_prospective(state, now_ms)
    _request_votes_or_win(state, now_ms)


def start_election(state: CoreState, now_ms: int) -> None:
    """Begin an election in the next epoch."""
    transition_to_candidate(state, now_ms)
    _request_votes_or_win(state, now_ms)


def _request_votes_or_win(state: CoreState, now_ms: int) -> None:
    """A single voter has won already."""
    if not _maybe_win(state, now_ms):
        request_votes(state, now_ms)


def _maybe_win(state: CoreState, now_ms: int) -> bool:
    role = state.role
    assert isinstance(role, Poll)
    if len(role.granted) < state.voters.majority:
        return False
    if isinstance(role, Candidate):
        transition_to_leader(state, now_ms)
    elif not state.shutting_down:
        start_election(state, now_ms)
    return True


def request_votes(state: CoreState, now_ms: int) -> None:
    """Send Vote to every voter that is due to be asked."""
    role = state.role
    assert isinstance(role, Poll)
    for node_id in [node_id for node_id, due_ms in role.retry_at_ms.items() if due_ms <= now_ms]:
        del role.retry_at_ms[node_id]
        state.send_to_voter(
            node_id,
            VoteRequest(
                cluster_id=state.cluster_id,
                candidate=state.local,
                voter=state.voter_key(node_id),
                epoch=state.epoch,
                last_epoch=state.log.last_epoch,
                last_offset=state.log.end_offset,
                pre_vote=isinstance(role, Prospective),
            ),
        )


def handle_vote_request(state: CoreState, token: int, request: VoteRequest, now_ms: int) -> None:
    error = _refusal(state, request)
    granted = False
    if error is ErrorCode.NONE:
        if request.pre_vote:
            granted = _may_grant(state, request) and not has_live_leader(state, now_ms)
        else:
            granted = _vote(state, request, now_ms)
    state.emit(
        Reply(
            token,
            VoteResponse(
                state.cluster_id,
                state.local,
                error,
                state.epoch,
                state.leader_id,
                granted,
                request.pre_vote,
                state.leader_address,
            ),
        )
    )


def _refusal(state: CoreState, request: VoteRequest) -> ErrorCode:
    error = refuse_sender(state, request)
    if error is not ErrorCode.NONE:
        return error
    if not request.voter.matches(state.local):
        return ErrorCode.INVALID_VOTER_KEY
    are_fixed = not state.voters.is_dynamic and request.voter.directory_id == ZERO_UUID
    if are_fixed and not (state.is_voter and state.voters.is_voter(request.candidate)):
        return ErrorCode.INCONSISTENT_VOTER_SET
    largest_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if not 0 <= request.last_epoch <= largest_epoch:
        return ErrorCode.INVALID_REQUEST
    if request.candidate.id == state.local.id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _may_grant(state: CoreState, request: VoteRequest) -> bool:
    """We have lost nothing that we acknowledged, and the candidate's log is at least as up to date."""
    if state.recovery is not None:
        return False
    return (request.last_epoch, request.last_offset) >= (state.log.last_epoch, state.log.end_offset)


def has_live_leader(state: CoreState, now_ms: int) -> bool:
    """Whether we lead, or have heard from our leader recently."""
    role = state.role
    if isinstance(role, Follower):
        last_contact_ms = role.last_contact_ms
        return last_contact_ms is not None and now_ms - last_contact_ms < state.config.live_leader_ms
    return isinstance(role, Leader)


def _vote(state: CoreState, request: VoteRequest, now_ms: int) -> bool:
    granted = _may_grant(state, request) and _has_a_vote_for(state, request)
    if granted and not (request.epoch == state.epoch and state.election.voted == request.candidate):
        transition_to_unattached(state, request.epoch, now_ms, voted=request.candidate)
    elif request.epoch > state.epoch:
        transition_to_unattached(state, request.epoch, now_ms)
    return granted


def _has_a_vote_for(state: CoreState, request: VoteRequest) -> bool:
    if request.epoch > state.epoch:
        return True
    # Asked again within an epoch, we give the same candidate the same answer, by the same rule.
    election = state.election
    return (
        isinstance(state.role, Unattached | Prospective)
        and election.leader_id is None
        and election.voted in (None, request.candidate)
    )


def handle_vote_response(state: CoreState, voter_id: int, response: VoteResponse, now_ms: int) -> None:
    role = state.role
    if maybe_adopt_epoch(state, response, now_ms):
        return
    if not isinstance(role, Poll) or response.pre_vote is not isinstance(role, Prospective):
        return
    is_behind = response.epoch < state.epoch and not response.pre_vote
    if response.error is not ErrorCode.NONE or is_behind:
        role.retry_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms
    elif response.vote_granted:
        role.granted.add(voter_id)
        _maybe_win(state, now_ms)
    else:
        role.refused.add(voter_id)
        _maybe_give_up(state, role, now_ms)


def handle_vote_failure(state: CoreState, voter_id: int, now_ms: int) -> None:
    role = state.role
    assert isinstance(role, Poll)
    role.retry_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms
    role.refused.add(voter_id)
    _maybe_give_up(state, role, now_ms)


def _maybe_give_up(state: CoreState, role: Poll, now_ms: int) -> None:
    """Back off as soon as those that refused or cannot be reached leave no majority.

    Two candidates that split the votes while a third voter is down would otherwise wait a whole election
    timeout. The requests continue meanwhile, and a vote that still arrives can win.
    """
    if not role.lost and len(role.refused - role.granted) > len(state.voters) - state.voters.majority:
        _begin_backoff(state, role, now_ms)


def run_poll_timers(state: CoreState, role: Poll, now_ms: int) -> None:
    if state.shutting_down and isinstance(role, Prospective):
        return
    if now_ms >= role.deadline_ms:
        if role.lost:
            seek_election(state, now_ms)
            return
        _begin_backoff(state, role, now_ms)
    request_votes(state, now_ms)


def poll_deadline_ms(state: CoreState, role: Poll) -> int | None:
    if state.shutting_down and isinstance(role, Prospective):
        return None
    return min(role.deadline_ms, *role.retry_at_ms.values()) if role.retry_at_ms else role.deadline_ms


def _begin_backoff(state: CoreState, role: Poll, now_ms: int) -> None:
    role.lost = True
    role.deadline_ms = now_ms + state.random_backoff_ms(role.retries)
    if isinstance(role, Prospective):
        search_leader(state, role)
