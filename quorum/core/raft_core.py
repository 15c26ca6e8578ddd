"""The Raft core of one replica: ``step(event, now_ms)`` in, an ordered list of effects out. No IO, no clock.

This file only routes: an event goes to the handler of its message, then whatever timers are due run, then an
idle follower asks for more. The transitions of roles are in :mod:`.transitions`, voting in :mod:`.vote`, the
leader's announcement and leave in :mod:`.begin_end`, replication and commitment in :mod:`.fetch`, what takes
the place of the log in :mod:`.snapshot` and :mod:`.download`, changes of the voter set in :mod:`.reconfig`
and :mod:`.kraft_upgrade`.
KIP-595 (pull-based Raft), with (id, directory id) keys as of KIP-853. What the caller must guarantee about
effects is written in :mod:`.effects`. Randomness is an argument, so equal inputs give equal outputs.
"""

from __future__ import annotations

from pykraft.quorum.core import (
    begin_end,
    download,
    fetch,
    kraft_upgrade,
    leader_search,
    reconfig,
    snapshot,
    vote,
)
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Effect, LeaderChanged
from pykraft.quorum.core.events import (
    Event,
    LogFlushed,
    Proposed,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    RetentionReached,
    ShutdownRequested,
    SnapshotChecked,
    SnapshotTaken,
    Started,
    TimerFired,
    UpgradeProposed,
)
from pykraft.quorum.core.log_shape import LogShape, SnapshotId
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from pykraft.quorum.core.plausibility import maybe_disbelieve
from pykraft.quorum.core.recovery import Recovery, handle_flushed
from pykraft.quorum.core.roles import (
    ElectionState,
    Follower,
    Leader,
    Poll,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from pykraft.quorum.core.state import CoreState, EpochAllowance, RandomSource
from pykraft.quorum.core.transitions import maybe_adopt_epoch, transition_to_resigned
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address


class RaftCore:
    """One replica of the metadata quorum, voter or observer (its key is not among the voters).

    ``election``, ``log``, ``history`` and ``latest_snapshot`` (None without one) are what was read back from
    disk, and so were ``recovery``, if the replica may lack what it acknowledged, and ``losses``;
    ``local_address`` is where others reach this replica, None if it serves no requests. The first event must
    be :class:`Started`.
    """

    __slots__ = ("state",)

    def __init__(
        self,
        *,
        config: QuorumConfig,
        cluster_id: str,
        local: ReplicaKey,
        history: VoterHistory,
        rng: RandomSource,
        election: ElectionState,
        log: LogShape,
        now_ms: int,
        latest_snapshot: SnapshotId | None = None,
        local_address: Address | None = None,
        recovery: Recovery | None = None,
        losses: int = 0,
    ) -> None:
        snapshot_end = 0 if latest_snapshot is None else latest_snapshot.end_offset
        assert log.start_offset <= snapshot_end <= log.end_offset, "the log must hold what no snapshot does"
        if log.last_epoch > election.epoch:
            raise ValueError(
                f"the log holds records of epoch {log.last_epoch}, but quorum-state knows epoch "
                f"{election.epoch} only: the file was lost or replaced, and a vote may have been forgotten"
            )
        voters = history.current
        if voters.ids == (local.id,) and not voters.is_voter(local) and not config.bootstrap_servers:
            raise ValueError(
                f"the only voter is {voters.voters[0].key}, this directory is {local}: no voter to follow"
            )
        if not voters and not config.bootstrap_servers:
            raise ValueError("no voters are known, and no bootstrap servers to ask for them")
        placeholder = Unattached(now_ms)
        self.state = CoreState(
            config,
            cluster_id,
            local,
            history,
            rng,
            election,
            log,
            placeholder,
            latest_snapshot,
            local_address,
            EpochAllowance(now_ms),
            recovery,
            losses,
        )
        self.state.role = _initial_role(self.state, now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return what must be done about it, in order."""
        state = self.state
        epoch = state.epoch
        state.epoch_allowance.refill(now_ms, has_leader=vote.has_live_leader(state, now_ms))
        self._handle(event, now_ms)
        state.epoch_allowance.left -= state.epoch - epoch
        self._run_timers(now_ms)
        role = state.role
        if isinstance(role, Follower) or (isinstance(role, Unattached) and not state.takes_part):
            fetch.maybe_fetch(state, role, now_ms)
        if isinstance(role, Follower):
            reconfig.maybe_ask_for_change(state, role, now_ms)
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
                    case FetchSnapshotRequest():
                        snapshot.handle_fetch_snapshot_request(state, token, request, now_ms)
                    case VoteRequest():
                        vote.handle_vote_request(state, token, request, now_ms)
                    case BeginQuorumEpochRequest():
                        begin_end.handle_begin_request(state, token, request, now_ms)
                    case EndQuorumEpochRequest():
                        begin_end.handle_end_request(state, token, request, now_ms)
                    case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest():
                        reconfig.handle_change_request(state, token, request, now_ms)
            case RequestAbandoned(token):
                if isinstance(state.role, Leader):
                    fetch.forget_parked(state.role, token)
                    reconfig.forget_change(state.role, token)
            case ResponseReceived():
                self._handle_response(event, now_ms)
            case LogFlushed(end_offset, generation):
                if state.log.flushed(end_offset, generation):
                    handle_flushed(state)
                    self._log_was_flushed()
            case Proposed(epoch, record_count, payload):
                fetch.handle_proposal(state, epoch, record_count, payload)
            case UpgradeProposed(epoch):
                kraft_upgrade.handle_upgrade(state, epoch, now_ms)
                assert isinstance(state.role, Leader)
                fetch.handle_appended_voters(state, state.role)
            case RequestFailed(correlation_id):
                self._handle_failure(correlation_id, now_ms)
            case SnapshotTaken(snapshot_id):
                snapshot.note_snapshot(state, snapshot_id)
            case RetentionReached(snapshot_id):
                snapshot.advance_log_start(state, snapshot_id)
            case SnapshotChecked(attempt, is_intact, voters):
                download.handle_checked(state, attempt, is_intact, voters, now_ms)
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
        asked = state.in_flight.pop(event.correlation_id, None)
        if asked is None:
            return
        # Another node, or another disk, that answers at this address cannot answer for the one we asked;
        # but it may say which replica leads, as any node may.
        is_other = asked.id >= 0 and not response.replica.matches(asked)
        if response.cluster_id != state.cluster_id or maybe_disbelieve(state, response):
            self._handle_failure_of(asked.id, event.correlation_id, now_ms)
            return
        if is_other:
            if maybe_adopt_epoch(state, response, now_ms):
                return
            self._handle_failure_of(asked.id, event.correlation_id, now_ms)
            return
        role, voter_id = state.role, asked.id
        match response:
            case FetchResponse() if isinstance(role, Prospective):
                leader_search.handle_search_response(state, role, event.correlation_id, response, now_ms)
            case FetchResponse():
                fetch.handle_fetch_response(state, event.correlation_id, response, now_ms)
            case FetchSnapshotResponse():
                download.handle_fetch_snapshot_response(state, event.correlation_id, response, now_ms)
            case VoteResponse():
                vote.handle_vote_response(state, voter_id, response, now_ms)
            case BeginQuorumEpochResponse():
                if isinstance(role, Leader):
                    reconfig.handle_probe_response(state, role, event.correlation_id, response, now_ms)
                begin_end.handle_begin_response(state, voter_id, response, now_ms)
            case EndQuorumEpochResponse():
                begin_end.handle_end_response(state, voter_id, response, now_ms)
            case VoterChangeResponse():
                reconfig.change_was_answered(state, event.correlation_id, now_ms)

    def _handle_failure(self, correlation_id: int, now_ms: int) -> None:
        asked = self.state.in_flight.pop(correlation_id, None)
        if asked is not None:
            self._handle_failure_of(asked.id, correlation_id, now_ms)

    def _handle_failure_of(self, voter_id: int, correlation_id: int, now_ms: int) -> None:
        state = self.state
        match state.role:
            case Follower() | Unattached():
                fetch.handle_fetch_failure(state, correlation_id, now_ms)
                reconfig.change_was_answered(state, correlation_id, now_ms)
            case Prospective(search_correlation=search) as asking if search == correlation_id:
                asking.search_correlation = None
            case Poll():
                vote.handle_vote_failure(state, voter_id, now_ms)
            case Leader() as leader:
                reconfig.handle_probe_failure(state, leader, correlation_id, now_ms)
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
        state.emit(LeaderChanged(state.leader_key, state.epoch, address=state.leader_address))
        if state.takes_part and state.voters.majority == 1:
            vote.seek_election(state, now_ms)

    def _run_timers(self, now_ms: int) -> None:
        state = self.state
        role = state.role
        if isinstance(role, Leader):
            if reconfig.run_changes(state, role, now_ms):
                fetch.handle_appended_voters(state, role)
            begin_end.run_leader_timers(state, role, now_ms)
            if state.role is role:
                fetch.expire_parked(state, role, now_ms)
        elif isinstance(role, Poll):
            vote.run_poll_timers(state, role, now_ms)
        elif isinstance(role, Resigned):
            begin_end.run_resigned_timers(state, role, now_ms)
        elif not state.shutting_down and state.may_be_candidate:
            deadline_ms = role.fetch_deadline_ms if isinstance(role, Follower) else role.election_deadline_ms
            if now_ms >= deadline_ms:
                if role.epoch_has_ended:
                    vote.start_election(state, now_ms)
                else:
                    vote.seek_election(state, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the core next needs a :class:`TimerFired`, on the clock of ``now_ms``; None for never."""
        state = self.state
        role = state.role
        match role:
            case Leader():
                times = [*role.begin_at_ms.values(), *(parked.deadline_ms for parked in role.parked.values())]
                check_quorum_ms = begin_end.check_quorum_deadline_ms(state, role)
                changes_ms = reconfig.changes_deadline_ms(role)
                times += [due_ms for due_ms in (check_quorum_ms, changes_ms) if due_ms is not None]
                return min(times, default=None)
            case Poll():
                return vote.poll_deadline_ms(state, role)
            case Resigned():
                return begin_end.resigned_deadline_ms(role, state.shutting_down)
        times = []
        if not state.shutting_down and state.may_be_candidate:
            times.append(role.fetch_deadline_ms if isinstance(role, Follower) else role.election_deadline_ms)
        must_fetch = isinstance(role, Follower) or not state.takes_part
        if must_fetch and role.fetch_correlation is None and state.log.flushed_offset == state.log.end_offset:
            times.append(role.next_fetch_ms)
        change_ms = reconfig.change_due_ms(state, role) if isinstance(role, Follower) else None
        if change_ms is not None:
            times.append(change_ms)
        return min(times, default=None)

    def may_propose(self, epoch: int) -> bool:
        """Whether a :class:`Proposed` event of this epoch may be stepped now."""
        return isinstance(self.state.role, Leader) and epoch == self.state.epoch

    def upgrade_objection(self, now_ms: int) -> str | None:
        """Why a leader must not step :class:`UpgradeProposed` now, for people; None if it may."""
        return kraft_upgrade.find_objection(self.state, now_ms)

    @property
    def has_handed_over(self) -> bool:
        """After ShutdownRequested: every voter has got EndQuorumEpoch."""
        role = self.state.role
        return not isinstance(role, Resigned) or not (role.end_at_ms or self.state.in_flight)


def _initial_role(state: CoreState, now_ms: int) -> Role:
    """The state of a replica after reading its disk.

    A former leader resumes as Resigned in the same epoch: part of what it appended may be lost, and two
    different records must never carry the same offset and epoch. A former candidate keeps its vote for
    itself but waits: its log may be shorter now than the one it campaigned with.
    """
    election = state.election
    timeout_ms = state.random_election_timeout_ms()
    leader = None if election.leader_id is None else state.voters.get(election.leader_id)
    if leader is None:
        return Unattached(now_ms + timeout_ms, next_fetch_ms=now_ms)
    if leader.key.id != state.local.id:
        fetch_ms = state.random_fetch_timeout_ms()
        role = Follower(leader.key.id, fetch_ms, now_ms + fetch_ms, next_fetch_ms=now_ms)
        role.leader_address = leader.address
        return role
    if not state.may_be_candidate:
        return Unattached(now_ms + timeout_ms, next_fetch_ms=now_ms)
    return Resigned(now_ms + timeout_ms, (), dict.fromkeys(state.other_voters(), now_ms))
