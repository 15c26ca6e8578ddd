from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaKey(_message.Message):
    __slots__ = ("id", "directory_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: bytes
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Voter(_message.Message):
    __slots__ = ("key", "address")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    key: ReplicaKey
    address: Address
    def __init__(self, key: _Optional[_Union[ReplicaKey, _Mapping]] = ..., address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "candidate", "voter", "epoch", "last_epoch", "last_offset", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    candidate: ReplicaKey
    voter: ReplicaKey
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool
    def __init__(self, cluster_id: _Optional[str] = ..., candidate: _Optional[_Union[ReplicaKey, _Mapping]] = ..., voter: _Optional[_Union[ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., last_offset: _Optional[int] = ..., pre_vote: _Optional[bool] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "vote_granted", "pre_vote", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTE_GRANTED_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    vote_granted: bool
    pre_vote: bool
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., vote_granted: _Optional[bool] = ..., pre_vote: _Optional[bool] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "leader", "voter", "epoch", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey
    epoch: int
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., leader: _Optional[_Union[ReplicaKey, _Mapping]] = ..., voter: _Optional[_Union[ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "leader", "voter", "epoch", "preferred_successors")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader: ReplicaKey
    voter: ReplicaKey
    epoch: int
    preferred_successors: _containers.RepeatedCompositeFieldContainer[ReplicaKey]
    def __init__(self, cluster_id: _Optional[str] = ..., leader: _Optional[_Union[ReplicaKey, _Mapping]] = ..., voter: _Optional[_Union[ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., preferred_successors: _Optional[_Iterable[_Union[ReplicaKey, _Mapping]]] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("address", "highest_kraft_version")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_KRAFT_VERSION_FIELD_NUMBER: _ClassVar[int]
    address: Address
    highest_kraft_version: int
    def __init__(self, address: _Optional[_Union[Address, _Mapping]] = ..., highest_kraft_version: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("cluster_id", "replica", "epoch", "fetch_offset", "last_fetched_epoch", "high_watermark", "max_wait_ms", "max_bytes", "is_recovering", "losses", "announced")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    is_recovering: bool
    losses: int
    announced: Announcement
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., is_recovering: _Optional[bool] = ..., losses: _Optional[int] = ..., announced: _Optional[_Union[Announcement, _Mapping]] = ...) -> None: ...

class DivergingEpoch(_message.Message):
    __slots__ = ("epoch", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "high_watermark", "diverging", "records", "snapshot_id", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    high_watermark: int
    diverging: DivergingEpoch
    records: bytes
    snapshot_id: SnapshotId
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., high_watermark: _Optional[int] = ..., diverging: _Optional[_Union[DivergingEpoch, _Mapping]] = ..., records: _Optional[bytes] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "epoch")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    epoch: int
    def __init__(self, end_offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "replica", "epoch", "snapshot_id", "position", "max_bytes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "snapshot_id", "position", "size_bytes", "checksum", "data", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    snapshot_id: SnapshotId
    position: int
    size_bytes: int
    checksum: int
    data: bytes
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., size_bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., data: _Optional[bytes] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class AddRaftVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "timeout_ms", "ack_when_committed")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_WHEN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., ack_when_committed: _Optional[bool] = ...) -> None: ...

class RemoveRaftVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "timeout_ms", "only_if_silent")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ONLY_IF_SILENT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: ReplicaKey
    timeout_ms: int
    only_if_silent: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[ReplicaKey, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., only_if_silent: _Optional[bool] = ...) -> None: ...

class UpdateRaftVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "timeout_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: Voter
    timeout_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class VoterChangeResponse(_message.Message):
    __slots__ = ("cluster_id", "replica", "error_code", "epoch", "leader_id", "message", "leader_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: ReplicaKey
    error_code: int
    epoch: int
    leader_id: int
    message: str
    leader_address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[ReplicaKey, _Mapping]] = ..., error_code: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., message: _Optional[str] = ..., leader_address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...
