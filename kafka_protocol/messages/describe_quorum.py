"""DescribeQuorum (55): leader, epoch, high watermark and progress of voters and observers.

Version 1 adds fetch and caught-up times, 2 directory ids and the voters' endpoints (KIP-853).
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: int = int32()


@struct
class DescribeQuorumRequestTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


@message(55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Message):
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


@message(55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Message):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, "2+")
