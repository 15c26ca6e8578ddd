"""Messages about nodes: what they serve, the brokers and their directories, the quorum and its features."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Body,
    Message,
    Request,
    array,
    boolean,
    byte_string,
    int8,
    int16,
    int32,
    int64,
    message,
    response_to,
    string,
    struct,
    uint16,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@message(18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """ApiVersions (18): which APIs and features a node serves. The first request on most connections.

    The one API that is answered even when its version is not supported: the answer is then a version 0 body
    with UNSUPPORTED_VERSION and at least this API's own range. Whatever the version, the response is sent
    with response header 0, because a client reads it before it knows which versions the server supports.

    Version 3 is flexible and adds the client's name and the feature lists. Up to version 3 a feature whose
    minimum is 0 must not be listed; version 4 lifts that.
    """

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@struct
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@response_to(ApiVersionsRequest)
class ApiVersionsResponse(Message):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


@struct
class MetadataRequestTopic:
    topic_id: Uuid = uuid("10+")
    name: str | None = string(nullable="10+")


@message(3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    """Metadata (3): brokers, topics, partitions and their leaders, as the answering broker knows them.

    All topics: null list from version 1 on, an empty list in version 0. From version 1 an empty list means
    none. Version 7 adds leader epochs, 8 the authorized operations, 10 topic ids, 12 look-up by id (null
    name), 13 an error code for the whole answer.
    """

    topics: list[MetadataRequestTopic] | None = array(
        MetadataRequestTopic, nullable="1+", distinct=("topic_id", "name")
    )
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", "5+")


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


@response_to(MetadataRequest)
class MetadataResponse(Message):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+")

    def encode(self, version: int) -> bytes:
        """As in :class:`Message`; a long list of topics that are already encoded is copied only once."""
        out = Body()
        self.encode_into(version, out)
        return out.to_bytes()


@message(60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """DescribeCluster (60): cluster id, controller and broker endpoints without any topics.

    Version 1 tells broker from controller endpoints, version 2 can include fenced brokers.
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@response_to(DescribeClusterRequest)
class DescribeClusterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: int = int32()


@struct
class DescribeQuorumRequestTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


@message(55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """DescribeQuorum (55): leader, epoch, high watermark and progress of voters and observers.

    Version 1 adds fetch and caught-up times, 2 directory ids and the voters' endpoints (KIP-853).
    """

    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class DescribeQuorumResponseTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(DescribeQuorumResponsePartitionData)


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@response_to(DescribeQuorumRequest)
class DescribeQuorumResponse(Message):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, "2+")


@message(80, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Request["AddRaftVoterResponse"]):
    """AddRaftVoter (80): add a controller to the voters of the quorum (KIP-853).

    Version 1 can ask for an answer before the change is committed.
    """

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


@response_to(AddRaftVoterRequest)
class AddRaftVoterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(81, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"]):
    """RemoveRaftVoter (81): remove a controller, named by id and directory, from the voters (KIP-853)."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


@response_to(RemoveRaftVoterRequest)
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@message(57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """UpdateFeatures (57): raise or lower finalized feature levels (KIP-584).

    Version 1 replaces the downgrade flag by an upgrade type and can validate only; 2 drops the per-feature
    results.
    """

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@struct
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response_to(UpdateFeaturesRequest)
class UpdateFeaturesResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


@message(64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    """UnregisterBroker (64): remove the registration of a broker that will not come back."""

    broker_id: int = int32()


@response_to(UnregisterBrokerRequest)
class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """DescribeLogDirs (35): log directories with the partitions in them and their sizes.

    Version 3 adds an error for the whole answer, 4 the sizes of the volume, 5 whether the directory is
    cordoned.
    """

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")


@response_to(DescribeLogDirsRequest)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


@struct
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = array("int32")


@struct
class AlterReplicaLogDir:
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """AlterReplicaLogDirs (34): moves replicas of one broker to other log directories of it (KIP-113)."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@response_to(AlterReplicaLogDirsRequest)
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


@message(17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """SaslHandshake (17): choose a SASL mechanism. From version 1 SaslAuthenticate carries the tokens."""

    mechanism: str = string()


@response_to(SaslHandshakeRequest)
class SaslHandshakeResponse(Message):
    error_code: int = int16()
    mechanisms: list[str] = array("string")


@message(36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """SaslAuthenticate (36): a step of the SASL exchange. Version 1 adds the session's lifetime (KIP-368)."""

    auth_bytes: bytes = byte_string()


@response_to(SaslAuthenticateRequest)
class SaslAuthenticateResponse(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64("1+")
