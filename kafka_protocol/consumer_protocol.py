"""Subscriptions and assignments: what consumers of the classic group protocol send each other.

The coordinator carries these bytes, and reads only which topics a subscription names; the admin client reads
assignments, to show which member has which partitions. The bytes start with their own version, an int16; the
rest follows a table that is never flexible. A reader that meets a newer version than it knows reads the
fields it knows and ignores the rest.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, byte_string, int32, message, string, struct
from pykraft.kafka_protocol.codec.versioned import VERSION_BYTES, M, encode_versioned, read_version
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError

PROTOCOL_TYPE = "consumer"
"""The type of the groups whose members write these bytes."""


@struct
class SubscriptionTopicPartition:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(versions="0-3")
class ConsumerProtocolSubscription(Message):
    """Version 1 adds the owned partitions (cooperative rebalancing), 2 the generation, 3 the rack."""

    topics: list[str] = array("string")
    user_data: bytes | None = byte_string(nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = array(SubscriptionTopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


@struct
class AssignmentTopicPartition:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(versions="0-3")
class ConsumerProtocolAssignment(Message):
    """The same in all versions."""

    assigned_partitions: list[AssignmentTopicPartition] = array(AssignmentTopicPartition)
    user_data: bytes | None = byte_string(nullable="0+", default=None)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = 3) -> bytes:
    """The subscription with its version in front, as JoinGroup carries it."""
    return encode_versioned(ConsumerProtocolSubscription, subscription, version)


def decode_subscription(data: Buffer) -> tuple[ConsumerProtocolSubscription, int]:
    """A member's subscription and the version it was written in."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_subscribed_topics(data: Buffer) -> list[str]:
    """The topics of a subscription of any version: all begin with the fields of version 0."""
    read_version(data)
    return ConsumerProtocolSubscription.decode_from(data, VERSION_BYTES, 0)[0].topics


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = 3) -> bytes:
    """The assignment with its version in front, as SyncGroup carries it."""
    return encode_versioned(ConsumerProtocolAssignment, assignment, version)


def decode_assignment(data: Buffer) -> tuple[ConsumerProtocolAssignment, int]:
    """A member's assignment and the version it was written in."""
    return _decode(ConsumerProtocolAssignment, data)


def _decode(cls: type[M], data: Buffer) -> tuple[M, int]:
    version = read_version(data)
    if version < cls.MIN_VERSION:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    value, _ = cls.decode_from(data, VERSION_BYTES, min(version, cls.MAX_VERSION))
    return value, version
