"""What must hold after every event, as named objects: run by the simulation, never by a live replica.

Each invariant watches the effects of one replica as they are carried out, and may look at the replica after
each step. What has been seen of the whole cluster is kept in one :class:`History`. Because only one replica
moves at a time and logs only grow by appends, checking what moved is checking everything;
``check_everything`` compares the whole logs anyway, now and then and at the end of a run.

Names follow the Raft paper where it has one (election safety, log matching, leader completeness, state
machine safety); the others are this project's rules about what is durable when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from pykraft.quorum.effects import (
    AdvanceHighWatermark,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    Effect,
    Reply,
    ReplyWithRecords,
    Send,
)
from pykraft.quorum.messages import FetchRequest, VoteRequest, VoteResponse
from pykraft.quorum.roles import ElectionState, Leader
from pykraft.quorum.state import CoreState
from pykraft.quorum.voters import ReplicaKey


class InvariantViolation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


class StoredBatch(NamedTuple):
    """A batch as it stands in a replica's log; ``value`` identifies its content."""

    base_offset: int
    end_offset: int
    epoch: int
    value: object


class ReplicaView(Protocol):
    """What the invariants see of one replica. ``durable_*`` is what a power loss now would leave."""

    @property
    def id(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def is_voter(self) -> bool: ...
    @property
    def core_state(self) -> CoreState: ...
    @property
    def durable_election(self) -> ElectionState: ...
    @property
    def durable_end_offset(self) -> int: ...
    @property
    def batches(self) -> Sequence[StoredBatch]: ...

    def batch_index(self, offset: int) -> int:
        """Index of the batch that begins at ``offset`` (the number of batches if it is the log end)."""
        ...

    def candidate_of(self, token: int) -> ReplicaKey:
        """Who asked for the vote that is answered under ``token``."""
        ...


class History:
    """Everything that was once true of the cluster and must stay so."""

    def __init__(self, majority: int) -> None:
        self.majority = majority
        self.replicas: list[ReplicaView] = []
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.high_watermarks: dict[int, tuple[int, int]] = {}
        self.known_batches: dict[tuple[int, int], tuple[StoredBatch, StoredBatch | None]] = {}
        self.epoch_starts: dict[int, int] = {}
        self.committed: list[StoredBatch] = []
        self.commit_epochs: list[int] = []
        self.acknowledged: dict[object, StoredBatch] = {}
        self.lost_disks = 0

    def replica(self, node_id: int) -> ReplicaView:
        return next(replica for replica in self.replicas if replica.id == node_id)

    def forget(self, node_id: int) -> None:
        """Its disk was replaced: under the old id comes somebody else, and one copy of everything is gone."""
        self.lost_disks += 1
        self.epochs.pop(node_id, None)
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != node_id}

    @property
    def committed_end_offset(self) -> int:
        return self.committed[-1].end_offset if self.committed else 0


class Invariant:
    """``watches``: effect types shown to :meth:`observe` right after they have been carried out."""

    name = ""
    watches: tuple[type[Effect], ...] = ()

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None: ...

    def after_step(self, replica: ReplicaView, history: History) -> None: ...

    def fail(self, detail: str) -> None:
        raise InvariantViolation(self.name, detail)


class ElectionSafety(Invariant):
    """At most one leader in an epoch."""

    name = "election safety"
    watches = (AppendLeaderChange,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendLeaderChange)
        leader = history.leaders.setdefault(effect.epoch, replica.id)
        if leader != replica.id:
            self.fail(f"{leader} and {replica.id} both lead epoch {effect.epoch}")


class LogMatching(Invariant):
    """Two logs that hold a batch of the same offset and epoch are the same up to it.

    By induction: each appended batch equals the one first seen with its offset and epoch, and follows the
    same predecessor; and an epoch begins at the same offset everywhere.
    """

    name = "log matching"
    watches = (AppendFetched, AppendProposal, AppendLeaderChange)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        batches = replica.batches
        count = len(effect.batches) if isinstance(effect, AppendFetched) else 1
        for index in range(len(batches) - count, len(batches)):
            batch = batches[index]
            before = batches[index - 1] if index else None
            known = history.known_batches.setdefault((batch.base_offset, batch.epoch), (batch, before))
            if known[0] != batch or known[1] != before:
                self.fail(
                    f"{replica.id} holds {batch} after {before}, elsewhere it is {known[0]} after {known[1]}"
                )
            if before is None or before.epoch < batch.epoch:
                start = history.epoch_starts.setdefault(batch.epoch, batch.base_offset)
                if start != batch.base_offset:
                    self.fail(
                        f"epoch {batch.epoch} begins at {start} and, on {replica.id}, at {batch.base_offset}"
                    )


class LeaderCompleteness(Invariant):
    """A new leader's log holds everything that was committed in earlier epochs.

    Not in later ones: a vote that arrives late may still make a leader of an epoch that is long past. It can
    commit nothing any more.
    """

    name = "leader completeness"
    watches = (AppendLeaderChange,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendLeaderChange)
        committed, held = history.committed, replica.batches
        last = len(committed) - 1
        while last >= 0 and history.commit_epochs[last] >= effect.epoch:
            last -= 1
        if last >= 0 and (len(held) <= last or held[last] != committed[last]):
            self.fail(f"leader {replica.id} lacks the committed {committed[last]}")


class StateMachineSafety(Invariant):
    """What replicas commit are prefixes of one and the same sequence."""

    name = "state machine safety"
    watches = (AdvanceHighWatermark,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AdvanceHighWatermark)
        before = history.high_watermarks.get(replica.id, (0, 0))
        known_to = before[1] if before[0] == replica.incarnation else 0
        committed, held = history.committed, replica.batches
        for index in range(replica.batch_index(known_to), len(held)):
            batch = held[index]
            if batch.base_offset >= effect.high_watermark:
                break
            if index < len(committed):
                if committed[index] != batch:
                    self.fail(f"{replica.id} commits {batch}, others have committed {committed[index]}")
            else:
                committed.append(batch)
                history.commit_epochs.append(replica.core_state.epoch)


class CommittedIsDurable(Invariant):
    """A majority of voters has everything committed on its disks; so nothing acknowledged can be lost."""

    name = "acknowledged values are never lost"
    watches = (AdvanceHighWatermark,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        self.check(history)

    def check(self, history: History) -> None:
        """Also called after each crash and truncation: only those can take something away."""
        if not history.committed:
            return
        index, last = len(history.committed) - 1, history.committed[-1]
        holders = 0
        for replica in history.replicas:
            if replica.is_voter and replica.durable_end_offset >= last.end_offset:
                held = replica.batches
                holders += len(held) > index and held[index] == last
        if holders < history.majority - history.lost_disks:
            self.fail(f"committed {last} is durable on {holders} voters only")


class CountedIsHeld(Invariant):
    """What a leader counts for a voter was fetched in its own epoch, and is on that voter's disk.

    Looked at when it changes. A voter that has gone on to a later epoch owes this leader nothing any more.
    """

    name = "a leader counts what is held"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int], int] = {}

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        role, epoch = state.role, state.election.epoch
        if not isinstance(role, Leader):
            return
        for node_id, progress in role.progress.items():
            key = (replica.id, epoch, node_id)
            if progress.end_offset != self._seen.get(key, 0):
                self._seen[key] = progress.end_offset
                self._check(replica, epoch, progress.end_offset, history.replica(node_id))

    def _check(self, leader: ReplicaView, epoch: int, end_offset: int, voter: ReplicaView) -> None:
        durable_epoch = voter.durable_election.epoch
        if durable_epoch > epoch or end_offset == 0:
            return
        if durable_epoch < epoch:
            self.fail(f"{leader.id} counts {voter.id} in epoch {epoch}, which that has not heard of")
        index = leader.batch_index(end_offset) - 1
        held = voter.batches
        if voter.durable_end_offset < end_offset or held[index] != leader.batches[index]:
            self.fail(f"{leader.id} counts {end_offset} for {voter.id}, which holds something else")


class MonotonicEpoch(Invariant):
    """A replica's epoch never falls, not even across restarts, and what it acts on is on its disk."""

    name = "monotonic epoch"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        epoch = replica.core_state.election.epoch
        if epoch < history.epochs.get(replica.id, 0):
            self.fail(f"{replica.id} falls from epoch {history.epochs[replica.id]} to {epoch}")
        history.epochs[replica.id] = epoch
        if replica.durable_election != replica.core_state.election:
            election = replica.core_state.election
            self.fail(f"{replica.id} acts on {election}, its disk says {replica.durable_election}")


class MonotonicHighWatermark(Invariant):
    """A replica's high watermark never falls while it runs, and never passes what is flushed there.

    On a leader the majority may be ahead of its own disk; what it has appended bounds it then.
    """

    name = "monotonic high watermark"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        incarnation, before = history.high_watermarks.get(replica.id, (replica.incarnation, 0))
        if incarnation == replica.incarnation and state.high_watermark < before:
            self.fail(f"{replica.id} falls from high watermark {before} to {state.high_watermark}")
        history.high_watermarks[replica.id] = (replica.incarnation, state.high_watermark)
        leads = isinstance(state.role, Leader)
        bound = (
            state.log.end_offset if leads or state.high_watermark == before else replica.durable_end_offset
        )
        if state.high_watermark > bound:
            self.fail(f"{replica.id} has high watermark {state.high_watermark} and holds only {bound}")


class VoteDurable(Invariant):
    """A vote is on disk before it is answered, and no replica votes twice in an epoch."""

    name = "vote durable before answered"
    watches = (Reply, Send)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        if isinstance(effect, Reply):
            if not isinstance(effect.response, VoteResponse) or not effect.response.vote_granted:
                return
            epoch, candidate = effect.response.epoch, replica.candidate_of(effect.token)
        else:
            assert isinstance(effect, Send)
            if not isinstance(effect.request, VoteRequest):
                return
            epoch, candidate = effect.request.epoch, effect.request.candidate
        durable = replica.durable_election
        if durable.epoch != epoch or durable.voted != candidate:
            self.fail(f"{replica.id} votes for {candidate} in epoch {epoch}, its disk says {durable}")
        earlier = history.votes.setdefault((replica.id, epoch), candidate.id)
        if earlier != candidate.id:
            self.fail(f"{replica.id} votes for {earlier} and {candidate.id} in epoch {epoch}")


class EpochDurable(Invariant):
    """No message leaves in an epoch that a crash could make its sender forget."""

    name = "epoch durable before sent"
    watches = (Reply, ReplyWithRecords, Send)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        message = effect.request if isinstance(effect, Send) else effect.response  # type: ignore[union-attr]
        if message.epoch > replica.durable_election.epoch:
            self.fail(
                f"{replica.id} speaks in epoch {message.epoch}, its disk says {replica.durable_election}"
            )


class FetchAcknowledgesDurable(Invariant):
    """A fetch acknowledges what is before its offset: only what is flushed."""

    name = "flushed before acknowledged"
    watches = (Send,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, Send)
        request = effect.request
        if isinstance(request, FetchRequest) and request.fetch_offset > replica.durable_end_offset:
            self.fail(
                f"{replica.id} acknowledges {request.fetch_offset}, flushed are {replica.durable_end_offset}"
            )


INVARIANTS: tuple[type[Invariant], ...] = (
    ElectionSafety,
    LogMatching,
    LeaderCompleteness,
    StateMachineSafety,
    CommittedIsDurable,
    CountedIsHeld,
    MonotonicEpoch,
    MonotonicHighWatermark,
    VoteDurable,
    EpochDurable,
    FetchAcknowledgesDurable,
)

Observer = Callable[[ReplicaView, Effect, History], None]


class Checker:
    """All invariants over one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.invariants = [invariant() for invariant in INVARIANTS]
        self._durable = next(i for i in self.invariants if isinstance(i, CommittedIsDurable))
        self._observers: dict[type, list[Observer]] = {}
        for invariant in self.invariants:
            for effect_type in invariant.watches:
                self._observers.setdefault(effect_type, []).append(invariant.observe)
        self._after_step = [
            invariant.after_step
            for invariant in self.invariants
            if type(invariant).after_step is not Invariant.after_step
        ]

    def effect_done(self, replica: ReplicaView, effect: Effect) -> None:
        for observe in self._observers.get(type(effect), ()):
            observe(replica, effect, self.history)

    def step_done(self, replica: ReplicaView) -> None:
        for after_step in self._after_step:
            after_step(replica, self.history)

    def storage_shrank(self) -> None:
        """A crash or a truncation took something from a disk."""
        self._durable.check(self.history)

    def check_everything(self, replicas: Iterable[ReplicaView]) -> None:
        """Compare whole logs: equal where offset and epoch are, and committed parts with the history."""
        seen: dict[tuple[int, int], StoredBatch] = {}
        committed = self.history.committed
        for replica in replicas:
            high_watermark = replica.core_state.high_watermark
            end_offset = 0
            for index, batch in enumerate(replica.batches):
                if batch.base_offset != end_offset:
                    raise InvariantViolation("log matching", f"{replica.id} has a gap before {batch}")
                end_offset = batch.end_offset
                if seen.setdefault((batch.base_offset, batch.epoch), batch) != batch:
                    raise InvariantViolation("log matching", f"{replica.id} differs at {batch}")
                if batch.base_offset < high_watermark and committed[index] != batch:
                    raise InvariantViolation("state machine safety", f"{replica.id} committed {batch}")
        values = [batch.value for batch in committed]
        for value, batch in self.history.acknowledged.items():
            index = values.index(value) if value in values else -1
            if index < 0 or committed[index] != batch:
                raise InvariantViolation("acknowledged values are never lost", f"{value} is gone")
