"""ConsumerGroupHeartbeat (68): the whole consumer group protocol of KIP-848 in one request.

Member epoch 0 joins, -1 leaves, -2 leaves but keeps a static member's place. A null field means unchanged
since the last heartbeat. In the answer a null assignment means unchanged. Version 1 adds a regular
expression subscription and has the client choose the member id (KIP-1082).
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
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
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


@message(68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(
        "string", nullable="0+", default_null=True, distinct=True
    )
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = array(
        ConsumerGroupHeartbeatRequestTopicPartitions, nullable="0+", default_null=True
    )


@struct
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


@struct
class Assignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


@message(68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+")
