"""Subscriptions and assignments of the classic group protocol."""

import pytest

from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.primitives import ProtocolError

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["a", "b"],
    user_data=b"u",
    owned_partitions=[SubscriptionTopicPartition(topic="a", partitions=[0, 1])],
    generation_id=5,
    rack_id="r",
)


def test_subscription_starts_with_its_version() -> None:
    encoded = encode_subscription(SUBSCRIPTION, 3)
    assert encoded[:2] == b"\x00\x03"
    assert decode_subscription(encoded) == (SUBSCRIPTION, 3)


def test_older_subscription_leaves_the_newer_fields_at_their_defaults() -> None:
    decoded, version = decode_subscription(encode_subscription(SUBSCRIPTION, 0))
    assert version == 0
    assert decoded == ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")


def test_known_fields_of_a_newer_subscription_are_read() -> None:
    encoded = b"\x00\x09" + encode_subscription(SUBSCRIPTION, 3)[2:] + b"something new"
    assert decode_subscription(encoded) == (SUBSCRIPTION, 9)


def test_assignment_round_trips() -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic="t", partitions=[3, 1])], user_data=None
    )
    for version in range(4):
        assert decode_assignment(encode_assignment(assignment, version)) == (assignment, version)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff"])
def test_malformed_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(ProtocolError):
            decode(data)


@pytest.mark.parametrize("version", range(4))
def test_truncation_at_every_byte_is_refused(version: int) -> None:
    encoded = encode_subscription(SUBSCRIPTION, version)
    for cut in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode_subscription(encoded[:cut])
