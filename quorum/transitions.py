"""Every way from one role to another: the table, and one function for each destination.

In prose (epochs are those of the election state; H = the epoch rises, S = it stays):

- **Unattached** → Unattached: a higher epoch is heard of (H), or the one vote of this epoch is cast (S).
  → Follower: a leader of this (S) or a higher (H) epoch is heard of. → Candidate: the election timeout ran
  out (H).
- **Candidate** → Leader: a majority granted its vote (S). → Follower: another leader of this (S) or a higher
  epoch (H). → Unattached: a higher epoch (H). → Candidate: lost, and the back-off is over (H).
- **Leader** → Resigned: no fetches from a majority, or a graceful stop (S). → Unattached, → Follower: a
  higher epoch (H). A leader never becomes a candidate directly, and leads no epoch it was not elected in.
- **Follower** → Follower, → Unattached: a higher epoch (H). → Candidate: its leader fell silent, or ended its
  epoch (H). Within one epoch a follower never changes its leader and never votes.
- **Resigned** → Candidate: the election timeout ran out (H). → Unattached, → Follower: a higher epoch (H).
  Resigned is also where a restarted leader begins.
- An observer is only ever Unattached or Follower.

Each function first emits the election state to be persisted (so that it is durable before anything else of
the step leaves) and only then switches. The epoch never falls and the vote of an epoch never changes.
Leaving a role forgets its requests in flight.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.effects import AppendLeaderChange, FlushLog, LeaderChanged, PersistElectionState, Reply
from pykraft.quorum.messages import FetchResponse
from pykraft.quorum.progress import FetchProgress
from pykraft.quorum.roles import Candidate, ElectionState, Follower, Leader, Resigned, Role, Unattached
from pykraft.quorum.state import CoreState
from pykraft.quorum.voters import ReplicaKey


class EpochRule(Enum):
    """What the epoch does along an edge."""

    SAME = "same"
    HIGHER = "higher"
    SAME_OR_HIGHER = "same or higher"


S, H, SH = EpochRule.SAME, EpochRule.HIGHER, EpochRule.SAME_OR_HIGHER

TRANSITIONS: MappingProxyType[tuple[type[Role], type[Role]], EpochRule] = MappingProxyType(
    {
        (Unattached, Unattached): SH,
        (Unattached, Follower): SH,
        (Unattached, Candidate): H,
        (Candidate, Leader): S,
        (Candidate, Follower): SH,
        (Candidate, Unattached): H,
        (Candidate, Candidate): H,
        (Leader, Resigned): S,
        (Leader, Unattached): H,
        (Leader, Follower): H,
        (Follower, Follower): H,
        (Follower, Unattached): H,
        (Follower, Candidate): H,
        (Resigned, Candidate): H,
        (Resigned, Unattached): H,
        (Resigned, Follower): H,
    }
)
OBSERVER_ROLES: tuple[type[Role], ...] = (Unattached, Follower)


def transition_to_unattached(
    state: CoreState, epoch: int, now_ms: int, *, voted: ReplicaKey | None = None
) -> None:
    """Learn of a higher epoch, or cast our vote in ``epoch`` (or both).

    A timer that runs already is put off only by casting a vote: otherwise a candidate that cannot win could
    keep everybody else from standing.
    """
    deadline_ms = now_ms + state.random_election_timeout_ms()
    if voted is None:
        role = state.role
        if isinstance(role, Unattached | Resigned):
            deadline_ms = min(deadline_ms, role.election_deadline_ms)
        elif isinstance(role, Follower):
            deadline_ms = min(deadline_ms, role.fetch_deadline_ms)
    _enter(state, ElectionState(epoch, None, voted), Unattached(deadline_ms), now_ms)
    state.emit(LeaderChanged(None, epoch))


def transition_to_candidate(state: CoreState, now_ms: int) -> None:
    """Stand in the next epoch, voting for ourselves; :mod:`.vote` sends the requests."""
    retries = state.role.retries + 1 if isinstance(state.role, Candidate) else 0
    role = Candidate(now_ms + state.random_election_timeout_ms(), retries, {state.local.id})
    role.retry_at_ms = dict.fromkeys(state.other_voters(), now_ms)
    epoch = state.epoch + 1
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
    state.emit(LeaderChanged(state.local, epoch, deliver_after_offset=start_offset))


def transition_to_follower(state: CoreState, epoch: int, leader_id: int, now_ms: int) -> None:
    """Follow the leader of ``epoch``. Our vote of this epoch, if cast, is kept on record."""
    voted = state.election.voted if epoch == state.epoch else None
    timeout_ms = state.random_fetch_timeout_ms()
    role = Follower(leader_id, timeout_ms, now_ms + timeout_ms, next_fetch_ms=now_ms)
    _enter(state, ElectionState(epoch, leader_id, voted), role, now_ms)
    state.emit(LeaderChanged(state.voter_key(leader_id), epoch))


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


def maybe_adopt_epoch(state: CoreState, epoch: int, leader_id: int | None, now_ms: int) -> bool:
    """Believe an answer about a newer epoch, or about the leader of this one; True if our role changed."""
    if leader_id == state.local.id or (leader_id is not None and state.voters.get(leader_id) is None):
        leader_id = None
    if epoch > state.epoch:
        if leader_id is None:
            transition_to_unattached(state, epoch, now_ms)
        else:
            transition_to_follower(state, epoch, leader_id, now_ms)
        return True
    if epoch == state.epoch and leader_id is not None and isinstance(state.role, Unattached | Candidate):
        transition_to_follower(state, epoch, leader_id, now_ms)
        return True
    return False


def _enter(state: CoreState, election: ElectionState, role: Role, now_ms: int) -> None:
    old, before = state.role, state.election
    rule = TRANSITIONS.get((type(old), type(role)))
    assert rule is not None, f"{type(old).__name__} → {type(role).__name__} is not an edge"
    allowed = {S: election.epoch == before.epoch, H: election.epoch > before.epoch}
    assert allowed.get(rule, election.epoch >= before.epoch), f"epoch {before.epoch} → {election.epoch}"
    assert state.is_voter or isinstance(role, OBSERVER_ROLES), "an observer neither votes nor leads"
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


def _answer_parked(state: CoreState, leader: Leader) -> None:
    """A leader that stops leading lets go of the fetches it holds."""
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
                ),
            )
        )
