"""The messages between replicas of the quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot,
and changes of the voter set (AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter).

Plain values; their form on the wire is in :mod:`pykraft.quorum.rpc`. Every message names the cluster and its
sender, and every request to a voter names its receiver, both as (id, directory id): a call that reaches the
wrong cluster, node or disk is refused.
Offsets are those of the metadata log; end offsets are exclusive. Epoch 0 means "no record yet".
An answer that names a leader gives its address, because the receiver's voter set may not contain it.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import Announcement, ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """One record batch as the core sees it: its offsets and the epoch of the leader that appended it.

    ``voters``: the voter set it holds, if it is a control batch with one.
    """

    base_offset: int
    end_offset: int
    epoch: int
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class DivergingEpoch:
    """The leader's answer to a follower that holds other records: truncate to the end of this epoch."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """``last_epoch`` and ``last_offset`` are the epoch of the last record and the log end offset.

    ``pre_vote``: only asks how the vote would go; ``epoch`` is then the current one of the sender (KIP-996).
    """

    cluster_id: str
    candidate: ReplicaKey
    voter: ReplicaKey
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """``pre_vote`` is that of the request: a granted pre-vote is never taken for a vote."""

    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    vote_granted: bool
    pre_vote: bool = False
    leader_address: Address | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """``leader_address``: where the leader listens, None if it does not know."""

    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey
    epoch: int
    leader_address: Address | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    leader_address: Address | None = None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """``preferred_successors``: the other voters, longest log first."""

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
    leader_address: Address | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for records from ``fetch_offset``, which acknowledges everything before it.

    ``fetch_offset`` is the replica's *flushed* log end (``is_recovering``: it acknowledges nothing, and
    withdraws what it did; ``losses``: how often it has had to). ``high_watermark`` is what it already knows,
    so that the leader can answer at once when there is news (KIP-1166). ``announced``: only while the voters
    are fixed.
    """

    cluster_id: str
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    is_recovering: bool = False
    losses: int = 0
    announced: Announcement | None = None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """One of ``diverging``, ``snapshot_id`` and records: ``batches`` outline ``payload`` (opaque to the
    core).

    ``snapshot_id``: the log no longer holds what was asked for; this snapshot covers it (KIP-630).
    """

    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    high_watermark: int = 0
    diverging: DivergingEpoch | None = None
    batches: tuple[BatchSpan, ...] = ()
    payload: object = None
    leader_address: Address | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """A replica asks for at most ``max_bytes`` of a snapshot's file from byte ``position`` on."""

    cluster_id: str
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """``size_bytes`` and ``checksum`` (CRC-32C) are those of the whole file; ``data`` is what is at
    ``position``.

    Two replicas' files of one id are the same only if both agree; only then may their pieces be combined.
    """

    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    snapshot_id: SnapshotId
    position: int
    size_bytes: int = 0
    checksum: int = 0
    data: bytes = b""
    leader_address: Address | None = None


@dataclass(frozen=True, slots=True)
class AddRaftVoterRequest:
    """Make an observer a voter. Answered after commit, or just the append; ``timeout_ms`` at most."""

    cluster_id: str
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveRaftVoterRequest:
    """Make a voter an observer.

    ``only_if_silent``: its node asks, under another directory id; not while the old one still fetches.
    """

    cluster_id: str
    voter: ReplicaKey
    timeout_ms: int
    only_if_silent: bool = False


@dataclass(frozen=True, slots=True)
class UpdateRaftVoterRequest:
    """A voter has a new address."""

    cluster_id: str
    voter: Voter
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class VoterChangeResponse:
    """The answer to each of the three. ``message``: why it was refused, for people."""

    cluster_id: str
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    leader_address: Address | None = None
    message: str = ""


VoterChangeRequest = AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest
Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VoterChangeRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
)
