"""What replicas of the quorum say to each other: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch.

Plain values; how they look on the wire is :mod:`pykraft.quorum.rpc`'s business. Every message names the
cluster and the replica that speaks, and every request to a voter names the voter it means, both as
(id, directory id): a call that reaches the wrong cluster, node or disk is refused, not believed.
Offsets are those of the metadata log; end offsets are exclusive. Epoch 0 means "no record yet".
"""

from __future__ import annotations

from dataclasses import dataclass

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """One record batch as the core sees it: its offsets and the epoch of the leader that appended it."""

    base_offset: int
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class DivergingEpoch:
    """The leader's answer to a follower that holds other records: cut back to the end of this epoch."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """``last_epoch`` and ``last_offset`` are the epoch of the last record and the log end offset."""

    cluster_id: str
    candidate: ReplicaKey
    voter: ReplicaKey
    epoch: int
    last_epoch: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class VoteResponse:
    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    vote_granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey
    epoch: int


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """``preferred_successors``: the other voters, furthest log end first."""

    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for records from ``fetch_offset``, and by that acknowledges everything before it.

    ``fetch_offset`` is the replica's *flushed* log end. ``high_watermark`` is what it already knows, so
    that the leader can answer at once when there is news (KIP-1166).
    """

    cluster_id: str
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Either ``diverging`` or records: ``batches`` describe what ``payload`` holds (opaque to the core)."""

    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    high_watermark: int = 0
    diverging: DivergingEpoch | None = None
    batches: tuple[BatchSpan, ...] = ()
    payload: object = None


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse
