"""BeginQuorumEpoch and EndQuorumEpoch: a leader announces its election and its resignation (KIP-595,
KIP-853).

A new leader announces itself to every voter until each has answered, and again to those that stop fetching (a
voter may have restarted, or missed it). A leader that resigns names its successors, longest log first, so
that the best one need not wait for its fetch timeout. Neither message is needed for safety.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.effects import Reply
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from pykraft.quorum.core.progress import majority_reached
from pykraft.quorum.core.refusals import refuse_sender
from pykraft.quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.transitions import (
    maybe_adopt_epoch,
    transition_to_follower,
    transition_to_resigned,
    transition_to_unattached_observer,
)
from pykraft.quorum.core.vote import seek_election


def announce_leadership(state: CoreState, role: Leader, now_ms: int) -> None:
    """Send BeginQuorumEpoch to every voter that is due to get it."""
    for node_id in [node_id for node_id, due_ms in role.begin_at_ms.items() if due_ms <= now_ms]:
        del role.begin_at_ms[node_id]
        key = state.voter_key(node_id)
        request = BeginQuorumEpochRequest(
            state.cluster_id, state.local, key, state.epoch, state.leader_address
        )
        state.send_to_voter(node_id, request)


def handle_begin_request(state: CoreState, token: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    error = _refusal(state, request)
    if error is ErrorCode.NONE:
        if request.epoch == state.epoch and state.election.leader_id not in (None, request.leader.id):
            error = ErrorCode.INVALID_REQUEST
        elif request.epoch > state.epoch or isinstance(state.role, Unattached | Prospective | Candidate):
            transition_to_follower(state, request.epoch, request.leader.id, now_ms, request.leader_address)
        role = state.role
        if isinstance(role, Follower) and error is ErrorCode.NONE and not role.epoch_has_ended:
            role.last_contact_ms = now_ms
            role.leader_address = request.leader_address or role.leader_address
    state.emit(
        Reply(
            token,
            BeginQuorumEpochResponse(
                state.cluster_id, state.local, error, state.epoch, state.leader_id, state.leader_address
            ),
        )
    )


def handle_end_request(state: CoreState, token: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
    """The leader resigns. The first successor starts an election at once, the others later, in their order.

    None of them needs a pre-vote (KIP-996): that is for voters that only suspect that the leader is dead.
    """
    error = _refusal(state, request)
    if error is ErrorCode.NONE:
        if request.epoch > state.epoch:
            transition_to_follower(state, request.epoch, request.leader.id, now_ms)
        elif state.election.leader_id not in (None, request.leader.id):
            error = ErrorCode.INVALID_REQUEST
    if error is ErrorCode.NONE:
        delay_ms = _succession_delay_ms(state, request)
        role = state.role
        if isinstance(role, Follower):
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + delay_ms)
            role.epoch_has_ended, role.last_contact_ms = True, None
        elif isinstance(role, Unattached):
            role.election_deadline_ms = min(role.election_deadline_ms, now_ms + delay_ms)
            role.epoch_has_ended = True
        elif isinstance(role, Prospective):
            role.lost, role.deadline_ms = True, min(role.deadline_ms, now_ms + delay_ms)
    state.emit(
        Reply(
            token,
            EndQuorumEpochResponse(
                state.cluster_id, state.local, error, state.epoch, state.leader_id, state.leader_address
            ),
        )
    )


def _succession_delay_ms(state: CoreState, request: EndQuorumEpochRequest) -> int:
    successors = request.preferred_successors
    for position, key in enumerate(successors):
        if key.matches(state.local):
            return position * state.config.election_backoff_max_ms // len(successors)
    return state.random_backoff_ms(retries=2)


def _refusal(state: CoreState, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> ErrorCode:
    error = refuse_sender(state, request)
    if error is not ErrorCode.NONE:
        return error
    if not request.voter.matches(state.local):
        return ErrorCode.INVALID_VOTER_KEY
    if request.leader.id == state.local.id:
        return ErrorCode.INVALID_REQUEST
    are_fixed = not state.voters.is_dynamic and request.voter.directory_id == ZERO_UUID
    if are_fixed and not state.voters.is_voter(request.leader):
        return ErrorCode.INVALID_REQUEST  # a leader whose set is in the log may know of voters that we do not
    return ErrorCode.NONE


def handle_begin_response(
    state: CoreState, voter_id: int, response: BeginQuorumEpochResponse, now_ms: int
) -> None:
    if maybe_adopt_epoch(state, response, now_ms):
        return
    role = state.role
    if isinstance(role, Leader) and voter_id in role.progress:
        again_ms = state.config.retry_backoff_ms
        if response.error is ErrorCode.NONE:
            again_ms = state.config.fetch_timeout_ms // 2
        role.begin_at_ms[voter_id] = now_ms + again_ms


def handle_begin_failure(state: CoreState, voter_id: int, now_ms: int) -> None:
    role = state.role
    assert isinstance(role, Leader)
    if voter_id in role.progress:
        role.begin_at_ms[voter_id] = now_ms + 5 * state.config.retry_backoff_ms


def handle_end_response(
    state: CoreState, voter_id: int, response: EndQuorumEpochResponse, now_ms: int
) -> None:
    maybe_adopt_epoch(state, response, now_ms)


def handle_end_failure(state: CoreState, voter_id: int, now_ms: int) -> None:
    """Try again, unless we are stopping: a voter that is also down must not delay the stop."""
    role = state.role
    assert isinstance(role, Resigned)
    if not state.shutting_down:
        role.end_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms


def check_quorum_deadline_ms(state: CoreState, role: Leader) -> int | None:
    """The time at which the last contact with a majority (ourselves included) is too long ago."""
    needed = state.voters.majority - state.is_voter
    if needed == 0:
        return None
    contact_ms = majority_reached((p.last_fetch_ms for p in role.progress.values()), needed)
    return contact_ms + state.config.check_quorum_timeout_ms


def run_leader_timers(state: CoreState, role: Leader, now_ms: int) -> None:
    if not state.is_voter and state.high_watermark > state.history.current_offset:
        # Our removal is committed; until now no other voter was certain to be able to commit it.
        transition_to_resigned(state, now_ms)
        announce_resignation(state, now_ms)
        return
    deadline_ms = check_quorum_deadline_ms(state, role)
    if deadline_ms is not None and now_ms >= deadline_ms:
        transition_to_resigned(state, now_ms)
        announce_resignation(state, now_ms)
        return
    for node_id, due_ms in role.begin_at_ms.items():
        quiet_until_ms = role.progress[node_id].last_fetch_ms + state.config.fetch_timeout_ms // 2
        if due_ms <= now_ms < quiet_until_ms and role.progress[node_id].last_fetch_ms > role.elected_at_ms:
            role.begin_at_ms[node_id] = quiet_until_ms
    announce_leadership(state, role, now_ms)


def announce_resignation(state: CoreState, now_ms: int) -> None:
    """Send EndQuorumEpoch to every voter that is due to get it."""
    role = state.role
    assert isinstance(role, Resigned)
    for node_id in [node_id for node_id, due_ms in role.end_at_ms.items() if due_ms <= now_ms]:
        del role.end_at_ms[node_id]
        state.send_to_voter(
            node_id,
            EndQuorumEpochRequest(
                state.cluster_id,
                state.local,
                state.voter_key(node_id),
                state.epoch,
                role.preferred_successors,
            ),
        )


def run_resigned_timers(state: CoreState, role: Resigned, now_ms: int) -> None:
    if now_ms >= role.election_deadline_ms and not state.shutting_down:
        if state.may_be_candidate:
            seek_election(state, now_ms)
        else:
            transition_to_unattached_observer(state, now_ms)
        return
    announce_resignation(state, now_ms)


def resigned_deadline_ms(role: Resigned, shutting_down: bool) -> int | None:
    times = list(role.end_at_ms.values())
    if not shutting_down:
        times.append(role.election_deadline_ms)
    return min(times, default=None)
