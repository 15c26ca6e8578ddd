"""Messages that create, change and describe topics and their replicas."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    response_to,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


@struct
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """CreateTopics (19): create topics, optionally with explicit placement and configs.

    Partition count and replication factor may be -1 for the cluster's defaults (version 4). Version 5 answers
    with what was really created, 7 with the topic id. Each topic succeeds or fails alone.
    """

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


@struct
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@struct
class CreatableTopicResult:
    name: str = string()
    topic_id: Uuid = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@response_to(CreateTopicsRequest)
class CreateTopicsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@struct
class DeleteTopicState:
    name: str | None = string(nullable="0+", default=None)
    topic_id: Uuid = uuid()


@message(20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """DeleteTopics (20): delete topics by name or, from version 6, by id.

    Versions up to 5 carry plain names in ``topic_names``; 6 has ``topics`` with a name or an id each.
    """

    topic_names: list[str] = array("string", "1-5")
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@response_to(DeleteTopicsRequest)
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array("int32")


@struct
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@message(37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """CreatePartitions (37): raise the partition count of topics; ``count`` is the new total."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response_to(CreatePartitionsRequest)
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array("int32", nullable="0+", default_null=True)


@struct
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """AlterPartitionReassignments (45): move replicas; null replicas cancel a move (KIP-455).

    Version 1 can forbid a change of the replication factor.
    """

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response_to(AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@struct
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@message(46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """ListPartitionReassignments (46): the moves under way; null topics ask for all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default_null=True
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")


@struct
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@response_to(ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


@struct
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """ElectLeaders (43): trigger preferred (0) or unclean (1) leader elections."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@response_to(ElectLeadersRequest)
class ElectLeadersResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


@struct
class TopicRequest:
    name: str = string()


@struct
class DescribeTopicPartitionsRequestCursor:
    topic_name: str = string()
    partition_index: int = int32()


@message(75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """DescribeTopicPartitions (75): topics a page at a time, with eligible leader replicas (KIP-966).

    An answer that hits the partition limit carries a cursor; sending it back continues there.
    """

    topics: list[TopicRequest] = array(TopicRequest, distinct=("name",))
    response_partition_limit: int = int32(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = nested(
        DescribeTopicPartitionsRequestCursor, nullable="0+"
    )


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    eligible_leader_replicas: list[int] | None = array("int32", nullable="0+", default_null=True)
    last_known_elr: list[int] | None = array("int32", nullable="0+", default_null=True)
    offline_replicas: list[int] = array("int32")


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: Uuid = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-(2**31))


@struct
class DescribeTopicPartitionsResponseCursor:
    topic_name: str = string()
    partition_index: int = int32()


@response_to(DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = nested(
        DescribeTopicPartitionsResponseCursor, nullable="0+"
    )
