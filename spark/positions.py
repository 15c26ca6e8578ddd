"""The start and end of a read, as its options give them: the same for all, by partition, or by timestamp.

Parses the JSON forms of Spark's Kafka source. Pure; ``offsets`` resolves them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pykraft.kafka_client.metadata import TopicPartition

LATEST = -1
EARLIEST = -2


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same for all partitions: ``EARLIEST`` or ``LATEST``."""

    position: int


@dataclass(frozen=True, slots=True)
class PerPartition:
    """An offset, or ``EARLIEST`` or ``LATEST``, for each partition that is read."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The first offset whose record is at least as new as the partition's timestamp (ms).

    ``everywhere`` set: one timestamp for all partitions. ``latest_if_none``: if no record is as new, use the
    end of the partition; otherwise that is an error.
    """

    everywhere: int | None
    timestamps: Mapping[TopicPartition, int]
    latest_if_none: bool


OffsetSpec = Everywhere | PerPartition | ByTimestamp


def parse_assignment(text: str) -> dict[str, tuple[int, ...]]:
    """``{"topicA":[0,1],"topicB":[2]}``. :class:`ValueError` for anything else."""
    assignment = {}
    for topic, partitions in _json_object(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"the value of {topic!r} is not a list of partition numbers")
        assignment[topic] = tuple(sorted({_partition(topic, partition) for partition in partitions}))
    if not assignment:
        raise ValueError("it names no topic")
    return assignment


def parse_offsets(text: str) -> Everywhere | PerPartition:
    """``earliest``, ``latest`` or ``{"topicA":{"0":23,"1":-2}}``. :class:`ValueError` for anything else."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Everywhere(EARLIEST if word == "earliest" else LATEST)
    positions = _by_partition(text, 'write \'earliest\', \'latest\' or JSON like {"topic":{"0":23,"1":-2}}')
    for where, position in positions.items():
        if position < EARLIEST:
            raise ValueError(f"the offset {position} of {where} is below -2 (earliest)")
    return PerPartition(positions)


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """``{"topicA":{"0":1700000000000}}``, milliseconds. :class:`ValueError` for anything else."""
    timestamps = _by_partition(text, 'write JSON like {"topic":{"0":1700000000000}}')
    for where, timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"the timestamp {timestamp} of {where} is negative")
    return timestamps


def _by_partition(text: str, hint: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(text, hint).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"the value of {topic!r} is not an object of partition numbers; {hint}")
        for name, position in partitions.items():
            if isinstance(position, bool) or not isinstance(position, int):
                raise ValueError(f"the position {position!r} of {topic}-{name} is not a whole number")
            found[TopicPartition(topic, _partition(topic, name))] = position
    if not found:
        raise ValueError(f"it names no partition; {hint}")
    return found


def _json_object(text: str, hint: str = 'write JSON like {"topic":[0,1]}') -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error}); {hint}") from None
    if not isinstance(value, dict):
        raise ValueError(f"it is not a JSON object; {hint}")
    return value


def _partition(topic: str, value: Any) -> int:
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a partition number of {topic!r}")
    return value
