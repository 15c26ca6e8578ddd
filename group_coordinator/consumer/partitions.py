"""Partitions as classic consumers write them, by names of topics, and as the coordinator keeps them, by ids.

Topics and partitions that do not exist are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykraft.group_coordinator.state.records import Partitions, TopicPartition, by_topic
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.codec.versioned import read_version
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    decode_assignment,
    encode_assignment,
)
from pykraft.kafka_protocol.primitives import ProtocolError


class NamedPartitions(Protocol):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


def find_partitions(named: Iterable[NamedPartitions], topics: TopicsView) -> Partitions:
    found: set[TopicPartition] = set()
    for one in named:
        topic_id, count = topics.topic_id(one.topic), topics.partition_count(one.topic)
        if topic_id is not None:
            found.update((topic_id, index) for index in one.partitions if 0 <= index < count)
    return frozenset(found)


def decode_assigned(assignment: bytes, topics: TopicsView) -> tuple[Partitions, bytes]:
    """The partitions of an assignment, and what its assignor adds for itself. May raise ProtocolError."""
    decoded, _ = decode_assignment(assignment)
    return find_partitions(decoded.assigned_partitions, topics), bytes(decoded.user_data or b"")


def encode_assigned(partitions: Partitions, subscription: bytes, topics: TopicsView) -> bytes:
    """The assignment, in the version in which the member wrote its ``subscription``."""
    named = [
        AssignmentTopicPartition(topic=name, partitions=indexes)
        for topic_id, indexes in by_topic(partitions).items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    try:
        version = read_version(subscription)
    except ProtocolError:
        version = ConsumerProtocolAssignment.MIN_VERSION
    version = max(
        ConsumerProtocolAssignment.MIN_VERSION, min(version, ConsumerProtocolAssignment.MAX_VERSION)
    )
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named), version)
