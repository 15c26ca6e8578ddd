"""ConsumerGroupDescribe (69): state, members, current and target assignments of KIP-848 groups.

Version 1 says for each member whether it still speaks the classic protocol.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@message(69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


@struct
class TopicPartitions:
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    member_type: int = int8("1+", default=-1)


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


@message(69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
