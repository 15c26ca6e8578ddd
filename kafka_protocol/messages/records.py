"""Messages that write, read and look up records."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    response_to,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class PartitionProduceData:
    index: int = int32()
    records: bytes | memoryview | None = records()


@struct
class TopicProduceData:
    name: str = string("3-12")
    topic_id: Uuid = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(0, versions="3-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    """Produce (0): append record batches to partitions.

    A request with acks=0 has no response at all. Version 9 is flexible, 10 adds the new leader's address to
    an error (KIP-951), 12 lets a transaction enrol partitions by producing to them (KIP-890), 13 names topics
    by id.

    This table is the reference for the hand-written parser in ``produce_fast``.
    """

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse:
    name: str = string("3-12")
    topic_id: Uuid = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@response_to(ProduceRequest)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


@struct
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=2**63 - 1, tag=1)


@struct
class FetchTopic:
    topic: str = string("4-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic: str = string("7-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[int] = array("int32")


@struct
class ReplicaState:
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@message(1, versions="4-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    """Fetch (1): read record batches, for consumers and for followers alike.

    Version 7 adds fetch sessions (KIP-227), 9 leader epoch fencing (KIP-320), 11 the consumer's rack, 12
    truncation by diverging epoch and the flexible encoding, 13 topic ids. From 15 a follower names itself in
    ``replica_state`` instead of ``replica_id``; 16 adds the new leader's address to an error, 17 the
    follower's directory, 18 the follower's high watermark.

    This table is the reference for the hand-written parser in :mod:`.fetch_requests`.
    """

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("4-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@struct
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@struct
class DivergingEpoch:
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: DivergingEpoch = nested(DivergingEpoch, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: bytes | memoryview | None = records()


@struct
class FetchableTopicResponse:
    topic: str = string("4-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


@response_to(FetchRequest)
class FetchResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """ListOffsets (2): the offset that belongs to a time, or to an end of the log.

    A negative timestamp asks for a special offset: -1 latest, -2 earliest, -3 the record with the greatest
    timestamp (version 7), -4 earliest local (8), -5 latest tiered (9). Version 4 adds leader epochs both
    ways, 10 a time limit for look-ups in remote storage.
    """

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response_to(ListOffsetsRequest)
class ListOffsetsResponse(Message):
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@struct
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """OffsetForLeaderEpoch (23): where a leader epoch ends in the log (KIP-101, KIP-320).

    Asked by consumers that check their position after a leader change and by followers of older brokers. The
    answer is the greatest epoch not above the one asked for, with its exclusive end offset, or -1/-1.
    """

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@response_to(OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


@struct
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """DeleteRecords (21): raise the log start offset of partitions; -1 means up to the high watermark."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@response_to(DeleteRecordsRequest)
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
