"""The Raft core of one replica: ``step(event, now_ms)`` in, an ordered list of effects out. No IO, no clock.

This file only routes: an event goes to the handler of its message, then whatever timers are due run, then an
idle follower asks for more. Who may become what is in :mod:`.transitions`, voting in :mod:`.vote`, the
leader's hello and goodbye in :mod:`.begin_end`, replication and commitment in :mod:`.fetch`.
KIP-595 (pull-based Raft), with (id, directory id) keys as of KIP-853. What the caller must guarantee about
effects is written in :mod:`.effects`. Randomness is an argument, so equal inputs give equal outputs.
"""

from __future__ import annotations

from pykraft.quorum import begin_end, fetch, vote
from pykraft.quorum.config import QuorumConfig
from pykraft.quorum.effects import Effect, LeaderChanged
from pykraft.quorum.events import (
    Event,
    LogFlushed,
    Proposed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    Started,
    TimerFired,
)
from pykraft.quorum.log_shape import LogShape
from pykraft.quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from pykraft.quorum.roles import Candidate, ElectionState, Follower, Leader, Resigned, Role, Unattached
from pykraft.quorum.state import CoreState, RandomSource
from pykraft.quorum.transitions import transition_to_resigned
from pykraft.quorum.voters import ReplicaKey, VoterSet


class RaftCore:
    """One replica of the metadata quorum, voter or observer (its key is not in ``voters``).

    ``election`` and ``log`` are what was read back from disk; the first event must be :class:`Started`.
    """

    __slots__ = ("state",)

    def __init__(
        self,
        *,
        config: QuorumConfig,
        cluster_id: str,
        local: ReplicaKey,
        voters: VoterSet,
        rng: RandomSource,
        election: ElectionState,
        log: LogShape,
        now_ms: int,
    ) -> None:
        if log.last_epoch > election.epoch:
            raise ValueError(
                f"the log holds records of epoch {log.last_epoch}, but quorum-state knows epoch "
                f"{election.epoch} only: the file was lost or replaced, and a vote may have been forgotten"
            )
        if voters.ids == (local.id,) and not voters.is_voter(local):
            raise ValueError(
                f"the only voter is {voters.voters[0].key}, this directory is {local}: nobody to follow"
            )
        placeholder = Unattached(now_ms)
        self.state = CoreState(config, cluster_id, local, voters, rng, election, log, placeholder)
        self.state.role = _initial_role(self.state, now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return what must be done about it, in order."""
        state = self.state
        self._handle(event, now_ms)
        self._run_timers(now_ms)
        role = state.role
        if isinstance(role, Follower) or (isinstance(role, Unattached) and not state.is_voter):
            fetch.maybe_fetch(state, role, now_ms)
        effects = state.effects
        state.effects = []
        return effects

    def _handle(self, event: Event, now_ms: int) -> None:
        state = self.state
        match event:
            case RequestReceived(token, request):
                match request:
                    case FetchRequest():
                        fetch.handle_fetch_request(state, token, request, now_ms)
                    case VoteRequest():
                        vote.handle_vote_request(state, token, request, now_ms)
                    case BeginQuorumEpochRequest():
                        begin_end.handle_begin_request(state, token, request, now_ms)
                    case EndQuorumEpochRequest():
                        begin_end.handle_end_request(state, token, request, now_ms)
            case ResponseReceived():
                self._handle_response(event, now_ms)
            case LogFlushed(end_offset, generation):
                if state.log.flushed(end_offset, generation):
                    self._log_was_flushed()
            case Proposed(epoch, record_count, payload):
                fetch.handle_proposal(state, epoch, record_count, payload)
            case RequestFailed(correlation_id):
                self._handle_failure(correlation_id, now_ms)
            case TimerFired():
                pass
            case Started():
                self._announce_initial_role(now_ms)
            case ShutdownRequested():
                state.shutting_down = True
                if isinstance(state.role, Leader):
                    transition_to_resigned(state, now_ms)

    def _handle_response(self, event: ResponseReceived, now_ms: int) -> None:
        state, response = self.state, event.response
        voter_id = state.in_flight.pop(event.correlation_id, None)
        if voter_id is None or response.cluster_id != state.cluster_id:
            self._handle_failure_of(voter_id, event.correlation_id, now_ms)
            return
        if not response.replica.matches(state.voter_key(voter_id)):
            # Another node, or another disk, answers at this voter's address: it cannot speak for the voter.
            self._handle_failure_of(voter_id, event.correlation_id, now_ms)
            return
        match response:
            case FetchResponse():
                fetch.handle_fetch_response(state, event.correlation_id, response, now_ms)
            case VoteResponse():
                vote.handle_vote_response(state, voter_id, response, now_ms)
            case BeginQuorumEpochResponse():
                begin_end.handle_begin_response(state, voter_id, response, now_ms)
            case EndQuorumEpochResponse():
                begin_end.handle_end_response(state, voter_id, response, now_ms)

    def _handle_failure(self, correlation_id: int, now_ms: int) -> None:
        voter_id = self.state.in_flight.pop(correlation_id, None)
        self._handle_failure_of(voter_id, correlation_id, now_ms)

    def _handle_failure_of(self, voter_id: int | None, correlation_id: int, now_ms: int) -> None:
        if voter_id is None:
            return
        state = self.state
        match state.role:
            case Follower() | Unattached():
                fetch.handle_fetch_failure(state, correlation_id, now_ms)
            case Candidate():
                vote.handle_vote_failure(state, voter_id, now_ms)
            case Leader():
                begin_end.handle_begin_failure(state, voter_id, now_ms)
            case Resigned():
                begin_end.handle_end_failure(state, voter_id, now_ms)

    def _log_was_flushed(self) -> None:
        role = self.state.role
        if isinstance(role, Leader):
            fetch.maybe_advance_leader_high_watermark(self.state, role)
        elif isinstance(role, Follower):
            fetch.advance_follower_high_watermark(self.state, role)

    def _announce_initial_role(self, now_ms: int) -> None:
        state = self.state
        leader_id = state.leader_id
        key = None if leader_id is None else state.voter_key(leader_id)
        state.emit(LeaderChanged(key, state.epoch))
        if state.is_voter and state.voters.majority == 1:
            vote.stand_for_election(state, now_ms)

    def _run_timers(self, now_ms: int) -> None:
        state = self.state
        role = state.role
        if isinstance(role, Leader):
            begin_end.run_leader_timers(state, role, now_ms)
            if state.role is role:
                fetch.expire_parked(state, role, now_ms)
        elif isinstance(role, Candidate):
            vote.run_candidate_timers(state, role, now_ms)
        elif isinstance(role, Resigned):
            begin_end.run_resigned_timers(state, role, now_ms)
        elif state.is_voter and not state.shutting_down:
            deadline_ms = role.fetch_deadline_ms if isinstance(role, Follower) else role.election_deadline_ms
            if now_ms >= deadline_ms:
                vote.stand_for_election(state, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the core next wants a :class:`TimerFired`, on the clock of ``now_ms``; None for never."""
        state = self.state
        role = state.role
        match role:
            case Leader():
                times = [*role.begin_at_ms.values(), *(parked.deadline_ms for parked in role.parked.values())]
                check_quorum_ms = begin_end.check_quorum_deadline_ms(state, role)
                if check_quorum_ms is not None:
                    times.append(check_quorum_ms)
                return min(times, default=None)
            case Candidate():
                return vote.candidate_deadline_ms(role)
            case Resigned():
                return begin_end.resigned_deadline_ms(role, state.shutting_down)
        times = []
        if state.is_voter and not state.shutting_down:
            times.append(role.fetch_deadline_ms if isinstance(role, Follower) else role.election_deadline_ms)
        wants_fetch = isinstance(role, Follower) or not state.is_voter
        if (
            wants_fetch
            and role.fetch_correlation is None
            and state.log.flushed_offset == state.log.end_offset
        ):
            times.append(role.next_fetch_ms)
        return min(times, default=None)

    def may_propose(self, epoch: int) -> bool:
        """Whether a :class:`Proposed` event of this epoch may be stepped now."""
        return isinstance(self.state.role, Leader) and epoch == self.state.epoch

    @property
    def has_handed_over(self) -> bool:
        """After ShutdownRequested: nobody is left who has yet to be told."""
        role = self.state.role
        return not isinstance(role, Resigned) or not (role.end_at_ms or self.state.in_flight)


def _initial_role(state: CoreState, now_ms: int) -> Role:
    """Where a replica begins after reading its disk.

    A former leader resumes as Resigned in the same epoch: part of what it appended may be lost, and two
    different records must never carry the same offset and epoch. A former candidate keeps its vote for
    itself but waits: its log may be shorter now than the one it campaigned with.
    """
    election = state.election
    timeout_ms = state.random_election_timeout_ms()
    if election.leader_id is None or state.voters.get(election.leader_id) is None:
        return Unattached(now_ms + timeout_ms, next_fetch_ms=now_ms)
    if election.leader_id != state.local.id:
        fetch_timeout_ms = state.random_fetch_timeout_ms()
        return Follower(election.leader_id, fetch_timeout_ms, now_ms + fetch_timeout_ms, next_fetch_ms=now_ms)
    if not state.is_voter:
        return Unattached(now_ms + timeout_ms, next_fetch_ms=now_ms)
    return Resigned(now_ms + timeout_ms, (), dict.fromkeys(state.other_voters(), now_ms))
