"""DescribeTopicPartitions (75): topics a page at a time, with eligible leader replicas (KIP-966).

An answer that hits the partition limit carries a cursor; sending it back continues there.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class TopicRequest:
    name: str = string()


@struct
class DescribeTopicPartitionsRequestCursor:
    topic_name: str = string()
    partition_index: int = int32()


@message(75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
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


@message(75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = nested(
        DescribeTopicPartitionsResponseCursor, nullable="0+"
    )
