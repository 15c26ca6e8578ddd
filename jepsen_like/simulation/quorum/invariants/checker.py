"""The invariants that must hold after every event, as named objects, which only the simulation runs.

Each invariant watches the effects of one replica as they are carried out, and may look at the replica after
each step. Facts about the whole cluster are kept in one :class:`History`. Because only one replica changes at
a time and logs only grow by appends, checking the changes checks everything; ``check_everything``
nevertheless compares the whole logs, from time to time and at the end of a run.

The names are those of the Raft paper where it has one (election safety, log matching, leader completeness,
state machine safety); the others are this project's rules about what is durable when.
"""

from collections.abc import Callable, Iterable

from pykraft.jepsen_like.simulation.quorum.invariants.durability import (
    CommittedIsDurable,
    CountedIsHeld,
    EpochDurable,
    FetchAcknowledgesDurable,
    SnapshotIsCommitted,
    VoteDurable,
)
from pykraft.jepsen_like.simulation.quorum.invariants.history import (
    History,
    Invariant,
    ReplicaView,
    StoredBatch,
)
from pykraft.jepsen_like.simulation.quorum.invariants.recovery import (
    LosersDoNotElect,
    RecoveredHoldsCommitted,
    RecoveringIsNotCounted,
)
from pykraft.jepsen_like.simulation.quorum.invariants.voters import (
    ElectedByMajority,
    MajoritiesIntersect,
    OneVoterChange,
    UpgradeKeepsTheVoters,
    VotersFollowTheLog,
)
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    AppendVoters,
    Effect,
)
from pykraft.quorum.core.roles import Leader, Resigned


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
    watches = (AppendFetched, AppendProposal, AppendLeaderChange, AppendVoters)

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

    It may lack what was committed in later epochs: a late vote may still elect a leader of an old epoch; that
    leader can no longer commit anything.
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
    """Commits of all replicas are prefixes of one and the same sequence."""

    name = "state machine safety"
    watches = (AdvanceHighWatermark,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AdvanceHighWatermark)
        before = history.high_watermarks.get(replica.id, (0, 0))
        known_to = before[1] if before[0] == replica.incarnation else 0
        committed, held = history.committed, replica.batches
        # Logs match (see above), so it suffices to compare the last batch that others have committed already.
        first = max(replica.batch_index(known_to), min(len(committed), len(held)) - 1)
        while first > 0 and held[first].base_offset >= effect.high_watermark:
            first -= 1
        for index in range(first, len(held)):
            batch = held[index]
            if batch.base_offset >= effect.high_watermark:
                break
            if index < len(committed):
                if committed[index] != batch:
                    self.fail(f"{replica.id} commits {batch}, others have committed {committed[index]}")
            else:
                committed.append(batch)
                history.commit_epochs.append(replica.core_state.epoch)


class MonotonicEpoch(Invariant):
    """A replica's epoch never falls, even across restarts; the one that it uses is on its disk."""

    name = "monotonic epoch"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        epoch = replica.core_state.election.epoch
        if epoch < history.epochs.get(replica.id, 0):
            self.fail(f"{replica.id} falls from epoch {history.epochs[replica.id]} to {epoch}")
        history.epochs[replica.id] = epoch
        if replica.durable_election != replica.core_state.election:
            election = replica.core_state.election
            self.fail(f"{replica.id} acts on {election}, but {replica.durable_election} is on its disk")


class MonotonicHighWatermark(Invariant):
    """A replica's high watermark never falls while it runs, and never passes what is flushed there.

    The majority may be ahead of a leader's own disk, or that of a removed leader that has just resigned; then
    its log end is the bound.
    """

    name = "monotonic high watermark"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        incarnation, before = history.high_watermarks.get(replica.id, (replica.incarnation, 0))
        if incarnation == replica.incarnation and state.high_watermark < before:
            self.fail(f"{replica.id} falls from high watermark {before} to {state.high_watermark}")
        history.high_watermarks[replica.id] = (replica.incarnation, state.high_watermark)
        leads = isinstance(state.role, Leader | Resigned)
        bound = (
            state.log.end_offset if leads or state.high_watermark == before else replica.durable_end_offset
        )
        if state.high_watermark > bound:
            self.fail(f"{replica.id} has high watermark {state.high_watermark}, but holds only {bound}")


INVARIANTS: tuple[type[Invariant], ...] = (
    ElectionSafety,
    ElectedByMajority,
    LogMatching,
    LeaderCompleteness,
    StateMachineSafety,
    CommittedIsDurable,
    SnapshotIsCommitted,
    CountedIsHeld,
    OneVoterChange,
    MajoritiesIntersect,
    UpgradeKeepsTheVoters,
    VotersFollowTheLog,
    MonotonicEpoch,
    MonotonicHighWatermark,
    VoteDurable,
    EpochDurable,
    FetchAcknowledgesDurable,
    LosersDoNotElect,
    RecoveredHoldsCommitted,
    RecoveringIsNotCounted,
)

Observer = Callable[[ReplicaView, Effect, History], None]


class Checker:
    """All invariants over one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.invariants = [invariant() for invariant in INVARIANTS]
        self._durable = next(i for i in self.invariants if isinstance(i, CommittedIsDurable))
        self._recovered = next(i for i in self.invariants if isinstance(i, RecoveredHoldsCommitted))
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
        """Check what must hold after a crash or a truncation has removed records from a disk."""
        self._durable.check(self.history)

    def recovered(self, replica: ReplicaView) -> None:
        """Check a replica whose start finds that no record is missing, or no longer."""
        self._recovered.check(replica, self.history)

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
        values = {batch.value: batch for batch in committed}
        for value, batch in self.history.acknowledged.items():
            if values.get(value) != batch:
                raise InvariantViolation("acknowledged values are never lost", f"{value} is lost")
