"""Every way from one role to another: the table, and one function for each destination.

In prose (epochs are those of the election state; H = the epoch rises, S = it stays):

- **Unattached** → Unattached: a higher epoch is heard of (H), or the one vote of this epoch is cast (S).
  → Follower: a leader of this (S) or a higher (H) epoch is heard of. → Prospective: the election timeout ran
  out (S). → Candidate: the leader of this epoch has ended it, and it is our turn (H).
- **Prospective** → Candidate: a majority would vote for it (H). → Follower: its leader speaks itself, or one
  it did not know is heard of (S), or one of a higher epoch (H). → Unattached: a higher epoch (H), or its vote
  of this epoch is cast for another (S). → Prospective: refused, and the back-off is over (S).
- **Candidate** → Leader: a majority granted its vote (S). → Follower: another leader of this (S) or a higher
  epoch (H). → Unattached: a higher epoch (H). → Prospective: lost, and the back-off is over (S).
- **Leader** → Resigned: no fetches from a majority, or a graceful stop (S). → Unattached, → Follower: a
  higher epoch (H). A leader never becomes a candidate directly, and leads no epoch it was not elected in.
  One that was removed from the voters leads until that is committed, then goes the same way (S).
- **Follower** → Follower, → Unattached: a higher epoch (H). → Prospective: its leader fell silent (S).
  → Candidate: its leader ended the epoch, and it is our turn (H). Within one epoch a follower never changes
  its leader and never votes.
- **Resigned** → Prospective: the election timeout ran out (S). → Unattached, → Follower: a higher epoch (H).
  → Unattached: the same timeout of a replica that no longer votes, which then asks other nodes (S).
  Resigned is also where a restarted leader begins.
- An observer is only ever Unattached or Follower; one whose removal is not committed yet counts as a voter
here.

Each function first emits the election state to be persisted (so that it is durable before anything else of
the step leaves) and only then switches. The epoch never falls and the vote of an epoch never changes.
Leaving a role forgets its requests in flight.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.effects import (
    AppendLeaderChange,
    FlushLog,
    LeaderChanged,
    PersistElectionState,
    Reply,
)
from pykraft.quorum.core.messages import FetchResponse, Response
from pykraft.quorum.core.plausibility import next_epoch
from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.reconfig import append_first_voters, refuse_changes
from pykraft.quorum.core.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Poll,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address


class EpochRule(Enum):
    """How the epoch changes along an edge."""

    SAME = "same"
    HIGHER = "higher"
    SAME_OR_HIGHER = "same or higher"


S, H, SH = EpochRule.SAME, EpochRule.HIGHER, EpochRule.SAME_OR_HIGHER

TRANSITIONS: MappingProxyType[tuple[type[Role], type[Role]], EpochRule] = MappingProxyType(
    {
        (Unattached, Unattached): SH,
        (Unattached, Follower): SH,
        (Unattached, Prospective): S,
        (Unattached, Candidate): H,
        (Prospective, Prospective): S,
        (Prospective, Candidate): H,
        (Prospective, Follower): SH,
        (Prospective, Unattached): SH,
        (Candidate, Leader): S,
        (Candidate, Follower): SH,
        (Candidate, Unattached): H,
        (Candidate, Prospective): S,
        (Leader, Resigned): S,
        (Leader, Unattached): H,
        (Leader, Follower): H,
        (Follower, Follower): H,
        (Follower, Unattached): H,
        (Follower, Prospective): S,
        (Follower, Candidate): H,
        (Resigned, Prospective): S,
        (Resigned, Unattached): SH,
        (Resigned, Follower): H,
    }
)
OBSERVER_ROLES: tuple[type[Role], ...] = (Unattached, Follower)


def transition_to_unattached(
    state: CoreState, epoch: int, now_ms: int, *, voted: ReplicaKey | None = None
) -> None:
    """Learn of a higher epoch, or cast our vote in ``epoch`` (or both).

    A running timer is restarted only by casting a vote: otherwise a candidate that cannot win could keep all
    others from starting an election.
    """
    deadline_ms = now_ms + state.random_election_timeout_ms()
    if voted is None:
        role = state.role
        if isinstance(role, Unattached | Resigned):
            deadline_ms = min(deadline_ms, role.election_deadline_ms)
        elif isinstance(role, Follower):
            deadline_ms = min(deadline_ms, role.fetch_deadline_ms)
        elif isinstance(role, Prospective):
            deadline_ms = min(deadline_ms, now_ms + state.random_backoff_ms(role.retries))
    _enter(state, ElectionState(epoch, None, voted), Unattached(deadline_ms), now_ms)
    state.emit(LeaderChanged(None, epoch))


def transition_to_prospective(state: CoreState, now_ms: int) -> None:
    """Ask, in this epoch and without a vote, whether we could win; :mod:`.vote` sends the requests."""
    retries = state.role.retries + 1 if isinstance(state.role, Poll) else 0
    role = Prospective(now_ms + state.random_election_timeout_ms(), retries, state.own_vote())
    role.retry_at_ms = dict.fromkeys(state.other_voters(), now_ms)
    if isinstance(state.role, Follower | Prospective):
        role.leader_address = state.role.leader_address
    _enter(state, state.election, role, now_ms)
    state.emit(LeaderChanged(None, state.epoch))


def transition_to_candidate(state: CoreState, now_ms: int) -> None:
    """Start an election in the next epoch, voting for ourselves; :mod:`.vote` sends the requests."""
    retries = state.role.retries if isinstance(state.role, Prospective) else 0
    role = Candidate(now_ms + state.random_election_timeout_ms(), retries, state.own_vote())
    role.retry_at_ms = dict.fromkeys(state.other_voters(), now_ms)
    epoch = next_epoch(state)
    _enter(state, ElectionState(epoch, None, state.local), role, now_ms)
    state.emit(LeaderChanged(None, epoch))


def transition_to_leader(state: CoreState, now_ms: int) -> None:
    """Lead the epoch we stood in. Its first record is a LeaderChange: only with it do older ones commit."""
    candidate = state.role
    assert isinstance(candidate, Candidate)
    assert len(candidate.granted) >= state.voters.majority
    log, epoch = state.log, state.epoch
    start_offset = log.end_offset
    others = state.other_voters()
    role = Leader(
        epoch_start_offset=start_offset,
        elected_at_ms=now_ms,
        progress={node_id: FetchProgress(state.voter_key(node_id), 0, now_ms, now_ms) for node_id in others},
        begin_at_ms=dict.fromkeys(others, now_ms),
    )
    _enter(state, ElectionState(epoch, state.local.id, state.election.voted), role, now_ms)
    state.emit(
        AppendLeaderChange(
            start_offset,
            epoch,
            state.local.id,
            tuple(voter.key for voter in state.voters),
            tuple(state.voter_key(node_id) for node_id in sorted(candidate.granted)),
        )
    )
    log.append(start_offset + 1, epoch)
    state.emit(FlushLog(log.end_offset, log.generation))
    state.emit(LeaderChanged(state.local, epoch, start_offset, state.leader_address))
    append_first_voters(state, now_ms)


def transition_to_follower(
    state: CoreState, epoch: int, leader_id: int, now_ms: int, leader_address: Address | None = None
) -> None:
    """Follow the leader of ``epoch``. Our vote of this epoch, if cast, is kept on record.

    ``leader_address``: as the leader, or another replica, gave it.
    """
    voted = state.election.voted if epoch == state.epoch else None
    timeout_ms = state.random_fetch_timeout_ms()
    role = Follower(leader_id, timeout_ms, now_ms + timeout_ms, next_fetch_ms=now_ms)
    voter = state.voters.get(leader_id)
    # Kept with the role: the set may lose a leader that removes itself, while we still fetch from it.
    role.leader_address = voter.address if leader_address is None and voter is not None else leader_address
    _enter(state, ElectionState(epoch, leader_id, voted), role, now_ms)
    state.emit(LeaderChanged(state.leader_key, epoch, address=state.leader_address))


def transition_to_resigned(state: CoreState, now_ms: int) -> None:
    """Stop leading without leaving the epoch; tell the others, best successor first."""
    leader = state.role
    assert isinstance(leader, Leader)
    furthest_first = sorted(leader.progress.values(), key=lambda p: (-p.end_offset, p.key.id))
    role = Resigned(
        now_ms + state.random_election_timeout_ms(),
        tuple(progress.key for progress in furthest_first),
        dict.fromkeys(state.other_voters(), now_ms),
    )
    _enter(state, state.election, role, now_ms)
    state.emit(LeaderChanged(None, state.epoch))


def transition_to_unattached_observer(state: CoreState, now_ms: int) -> None:
    """From Resigned, for a replica that no longer votes: no leader will announce itself to it."""
    role = Unattached(now_ms + state.random_election_timeout_ms(), next_fetch_ms=now_ms)
    _enter(state, state.election, role, now_ms)


def maybe_adopt_epoch(state: CoreState, response: Response, now_ms: int) -> bool:
    """Believe an answer about a newer epoch, or about the leader of this one; True if our role changed.

    A prospective does not believe others that the leader it no longer hears still leads; it only takes the
    address from them and asks that leader itself (otherwise its fetches would keep the leader in office
    although neither hears the other). A leader without a known address cannot be followed.
    """
    epoch, leader_id, address = response.epoch, response.leader_id, response.leader_address
    if leader_id == state.local.id:
        leader_id = None
    is_voter = leader_id is not None and state.voters.get(leader_id) is not None
    if address is None and not is_voter:
        leader_id = None
    if epoch > state.epoch and leader_id is None:
        transition_to_unattached(state, epoch, now_ms)
        return True
    if leader_id is None or epoch < state.epoch:
        return False
    known_id, role = state.election.leader_id, state.role
    if epoch == state.epoch and known_id is not None:
        if known_id != leader_id or not isinstance(role, Unattached | Prospective):
            return False
        if isinstance(role, Prospective) and response.replica.id != leader_id:
            role.leader_address = address or role.leader_address
            return False
    transition_to_follower(state, epoch, leader_id, now_ms, address)
    return True


def _enter(state: CoreState, election: ElectionState, role: Role, now_ms: int) -> None:
    old, before = state.role, state.election
    rule = TRANSITIONS.get((type(old), type(role)))
    assert rule is not None, f"{type(old).__name__} → {type(role).__name__} is not an edge"
    allowed = {S: election.epoch == before.epoch, H: election.epoch > before.epoch}
    assert allowed.get(rule, election.epoch >= before.epoch), f"epoch {before.epoch} → {election.epoch}"
    may_vote = state.may_be_candidate or isinstance(old, Leader)
    assert may_vote or isinstance(role, OBSERVER_ROLES), "an observer is neither a candidate nor a leader"
    if election.epoch == before.epoch:
        assert before.voted is None or before.voted == election.voted, "a vote was changed"
        assert before.leader_id is None or before.leader_id == election.leader_id, "a leader was changed"
    if election != before:
        state.emit(PersistElectionState(election))
    state.election = election
    state.role = role
    state.in_flight.clear()
    if isinstance(old, Leader):
        _answer_parked(state, old)
        refuse_changes(state, old)


def _answer_parked(state: CoreState, leader: Leader) -> None:
    """A leader that stops leading drops the fetches it holds."""
    for parked in leader.parked.values():
        state.emit(
            Reply(
                parked.token,
                FetchResponse(
                    state.cluster_id,
                    state.local,
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    state.epoch,
                    state.leader_id,
                    leader_address=state.leader_address,
                ),
            )
        )
