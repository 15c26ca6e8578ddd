"""The offsets of a streaming query, in the form of Spark's Kafka source, and the limit of a micro-batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pykraft.kafka_client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""

OffsetsJson = dict[str, dict[str, int]]
"""``{"topic": {"0": 23}}``, what checkpoints hold."""


def to_json(offsets: Offsets) -> OffsetsJson:
    """In order, since Spark compares the text."""
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic[topic][str(partition)] = offset
    return dict(by_topic)


def from_json(value: OffsetsJson) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets there are to read; ``start`` has every partition."""
    return sum(max(0, offset - start[partition]) for partition, offset in end.items())


def limit_offsets(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """Where a micro-batch of about ``most`` offsets ends: each partition gets its share of them, by what it
    has, and at least one, so that no partition waits for the others. ``start`` has every partition.
    """
    sizes = {partition: max(0, offset - start[partition]) for partition, offset in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {
        partition: start[partition] + max(1, most * size // total) if size else end[partition]
        for partition, size in sizes.items()
    }
