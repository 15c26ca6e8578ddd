"""The base of invariants: the view of a replica, and the history of the whole cluster.

The invariants themselves are in :mod:`.checker`, :mod:`.voters`, :mod:`.durability` and :mod:`.recovery`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import ReplicaKey, VoterSet


class StoredBatch(NamedTuple):
    """A batch in a replica's log; ``value`` identifies its content."""

    base_offset: int
    end_offset: int
    epoch: int
    value: object


class ReplicaView(Protocol):
    """One replica as invariants see it. ``durable_*``: what a power loss now would leave."""

    @property
    def id(self) -> int: ...
    @property
    def key(self) -> ReplicaKey: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def voters_in_log(self) -> VoterSet:
        """The newest voter set of its log (committed or not), or the one it was formatted with."""
        ...

    @property
    def core_state(self) -> CoreState: ...
    @property
    def durable_election(self) -> ElectionState: ...
    @property
    def durable_end_offset(self) -> int: ...
    @property
    def batches(self) -> Sequence[StoredBatch]:
        """All batches from the first on: those that a snapshot covers, followed by those in the log."""
        ...

    def batch_index(self, offset: int) -> int:
        """The index of the batch that begins at ``offset`` (the number of batches if that is the log end)."""
        ...

    def candidate_of(self, token: int) -> ReplicaKey:
        """The candidate that asked for the vote that is answered under ``token``."""
        ...


class History:
    """Facts about the cluster that must stay true forever."""

    def __init__(self) -> None:
        self.commit_voters: VoterSet | None = None
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
        self.lost_end_offsets: list[int] = []
        self.replaced: set[ReplicaKey] = set()
        self.lost_votes: set[tuple[int, int]] = set()
        self.lost_batches: dict[int, list[StoredBatch]] = {}
        """The flushed batches that a damaged disk has lost, by replica, until the replica has recovered."""
        self.losses: dict[int, int] = {}
        """How many losses such a replica had found by its last start."""

    def replica(self, node_id: int) -> ReplicaView:
        return next(replica for replica in self.replicas if replica.id == node_id)

    def forget(self, node_id: int) -> None:
        """Its disk was replaced: the id is that of a new replica now, and one copy of everything is lost."""
        self.lost_end_offsets.append(self.replica(node_id).durable_end_offset)
        self.replaced.add(self.replica(node_id).key)
        self.lost_batches.pop(node_id, None)
        self.losses.pop(node_id, None)
        self.epochs.pop(node_id, None)
        self.high_watermarks.pop(node_id, None)
        self.lost_votes.update(key for key in self.votes if key[0] == node_id)
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != node_id}

    def damage(self, node_id: int, flushed_offset: int, batches: Sequence[StoredBatch]) -> None:
        """It had flushed up to ``flushed_offset``, and can no longer read these last batches."""
        self.lost_end_offsets.append(flushed_offset)
        self.lost_batches[node_id] = list(batches)
        self.losses.pop(node_id, None)  # it does not know yet

    @property
    def committed_end_offset(self) -> int:
        return self.committed[-1].end_offset if self.committed else 0


def keys_of(voters: VoterSet) -> set[ReplicaKey]:
    return {voter.key for voter in voters}


class Invariant:
    """``watches``: effect types shown to :meth:`observe` right after they have been carried out."""

    name = ""
    watches: tuple[type[Effect], ...] = ()

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None: ...

    def after_step(self, replica: ReplicaView, history: History) -> None: ...

    def fail(self, detail: str) -> None:
        raise InvariantViolation(self.name, detail)
