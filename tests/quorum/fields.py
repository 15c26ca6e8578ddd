"""What tests set of the quorum's messages: the keywords of the functions that make them."""

from typing import TypedDict

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import BatchSpan, DivergingEpoch
from pykraft.quorum.core.voters import Announcement, ReplicaKey, Voter
from pykraft.runtime.address import Address


class VoteFields(TypedDict, total=False):
    cluster_id: str
    voter: ReplicaKey
    pre_vote: bool


class WholeVoteFields(VoteFields, total=False):
    candidate: ReplicaKey
    last_epoch: int
    last_offset: int


class VoteResponseFields(TypedDict, total=False):
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    leader_address: Address | None


class BeginFields(TypedDict, total=False):
    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey


class BeginResponseFields(TypedDict, total=False):
    replica: ReplicaKey
    error: ErrorCode


class EndFields(TypedDict, total=False):
    leader: ReplicaKey
    preferred_successors: tuple[ReplicaKey, ...]


class FetchFields(TypedDict, total=False):
    cluster_id: str
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    is_recovering: bool
    losses: int


class WholeFetchFields(FetchFields, total=False):
    epoch: int
    announced: Announcement | None


class FetchResponseFields(TypedDict, total=False):
    replica: ReplicaKey
    error: ErrorCode
    epoch: int
    leader_id: int | None
    diverging: DivergingEpoch
    batches: tuple[BatchSpan, ...]
    payload: object
    snapshot_id: SnapshotId


class WholeFetchResponseFields(FetchResponseFields, total=False):
    high_watermark: int


class FetchSnapshotFields(TypedDict, total=False):
    cluster_id: str
    snapshot_id: SnapshotId
    position: int


class FetchSnapshotResponseFields(TypedDict, total=False):
    replica: ReplicaKey
    error: ErrorCode
    leader_id: int | None


class AddVoterFields(TypedDict, total=False):
    voter: Voter
    ack_when_committed: bool
