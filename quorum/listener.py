"""The quorum's calls to the rest of the process: commits, leaders, and the state of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of an epoch, None while it is not known."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed batch. ``last_offset`` is inclusive; ``append_time_ms`` is the leader's time of day.

    ``values`` are the proposed values, one per record; empty for control batches, which have offsets too.
    ``size_bytes``: the size in the log, header included.

    A batch of very many values is handed over in pieces, which differ in ``values`` only; ``earlier`` is how
    many values the pieces before hold together.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    values: tuple[bytes, ...]
    size_bytes: int = 0
    earlier: int = 0

    @property
    def is_last_piece(self) -> bool:
        """Whether no other piece of the batch follows."""
        return not self.values or self.base_offset + self.earlier + len(self.values) > self.last_offset


class QuorumListener(Protocol):
    """Called on the event loop, one call at a time, never from within a call to the quorum."""

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Every committed batch exactly once, in offset order, from the start of the log or a snapshot's
        end. Of a batch in pieces the next follow in the next calls, unless a snapshot begins.
        """
        ...

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        """The snapshot replaces EVERYTHING that was delivered before: at a start, or if the log before it was
        deleted.

        ``append_time_ms``: the leader's time of day of the last batch in it. A second begin before the finish
        starts over with another snapshot. Between begin and finish nothing else is called.
        """
        ...

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        """The next values of the snapshot, at most about 1000 a call."""
        ...

    def finish_snapshot(self) -> None:
        """The snapshot is complete; commits continue at its ``end_offset``."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The leader or the epoch changed.

        Called soon after, except when the local replica leads: then only after everything up to and including
        its LeaderChange record has been delivered, so that a new leader starts from complete state.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """One replica as the leader sees it. Times are wall-clock milliseconds; -1 is unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum as one replica sees it; only the leader knows the progress of the others."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]
