"""Kafka's formats of the records in ``__consumer_offsets``, as message tables (``kafka_protocol.schema``).

A key begins with the type of the record, a value with its version. Fields have the same names as in
:mod:`.records`.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    byte_string,
    int8,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@message(versions="0")
class OffsetKey(Message):
    group_id: str = string()
    topic: str = string()
    partition: int = int32()


@message(versions="0")
class GroupKey(Message):
    group_id: str = string()


@message(versions="0")
class MemberKey(Message):
    group_id: str = string()
    member_id: str = string()


@message(versions="0")
class RegularExpressionKey(Message):
    group_id: str = string()
    regex: str = string()


@message(versions="0-4", flexible="4+")
class OffsetCommit(Message):
    """Only version 1 has an expiry timestamp."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp_ms: int = int64()
    expire_timestamp_ms: int = int64("1", default=-1)
    topic_id: Uuid = uuid("4+", tag=0)


@struct
class ClassicMember:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    session_timeout_ms: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(versions="0-4", flexible="4+")
class GroupMetadata(Message):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp_ms: int = int64("2+", default=-1)
    members: list[ClassicMember] = array(ClassicMember)


@message(versions="0", flexible="0+")
class ConsumerGroupMetadata(Message):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@struct
class ClassicProtocol:
    name: str = string()
    metadata: bytes = byte_string()


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadata(Message):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32()
    server_assignor: str | None = string(nullable="0+")
    classic: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, nullable="0+", tag=0)


@message(versions="0", flexible="0+")
class TargetAssignmentMetadata(Message):
    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0)


@struct
class TopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


@message(versions="0", flexible="0+")
class TargetAssignmentMember(Message):
    partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class HeldPartitions:
    """``assignment_epochs`` has one epoch for each of ``partitions``; null if it was written before 4.3."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", default_null=True, tag=0)


@message(versions="0", flexible="0+")
class CurrentAssignment(Message):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[HeldPartitions] = array(HeldPartitions)
    pending_revocation: list[HeldPartitions] = array(HeldPartitions)


@message(versions="0", flexible="0+")
class RegularExpression(Message):
    topics: list[str] = array("string")
    version: int = int64()
    timestamp_ms: int = int64()
