"""The JSON files of Kafka's tools that name partitions, topics or offsets.

:class:`click.UsageError` for a file that cannot be read, or holds anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.shared.directory_moves import ANY, Replica

T = TypeVar("T")

OFFSETS_SHAPE: Final = '{"partitions": [{"topic": "t", "partition": 0, "offset": 42}, …], "version": 1}'
_SHAPE = '{"partitions": [{"topic": "t", "partition": 0, …}, …]}'


def read_partitions_file(path: str) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    """The partitions in a JSON file of Kafka's tools, with their replicas if it names any."""
    return _read_file(path, _SHAPE, _partition_in_file)


def read_reassignment_file(path: str) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[Replica, str]]:
    """The partitions in a JSON file of kafka-reassign-partitions, with their replicas, and the directories of
    those replicas for which it names one.
    """
    found = _read_file(path, _SHAPE, _reassignment_in_file)
    replicas = {partition: tuple(broker for broker, _ in named) for partition, named in found}
    for partition, brokers in replicas.items():
        if not brokers:
            raise click.UsageError(f"{partition} has no replicas in {path}")
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"{path} names a replica of {partition} twice")
    directories = {
        Replica(broker, partition): directory
        for partition, named in found
        for broker, directory in named
        if directory != ANY
    }
    return replicas, directories


def read_topics_file(path: str) -> list[str]:
    """The topics in a JSON file of kafka-reassign-partitions."""
    topics = _read_items(
        path, '{"topics": [{"topic": "t"}, …], "version": 1}', "topics", lambda it: it["topic"]
    )
    if len(set(topics)) != len(topics):
        raise click.UsageError(f"{path} names a topic twice")
    return topics


def read_offsets_file(path: str) -> dict[TopicPartition, int]:
    """The partitions in a JSON file of kafka-delete-records, with their offsets."""
    return dict(_read_file(path, OFFSETS_SHAPE, _offset_in_file))


def _read_file(
    path: str, shape: str, parse: Callable[[Any], tuple[TopicPartition, T]]
) -> list[tuple[TopicPartition, T]]:
    found = _read_items(path, shape, "partitions", parse)
    named = [partition for partition, _ in found]
    if len(set(named)) != len(named):
        raise click.UsageError(f"{path} names a partition twice")
    return found


def _read_items(path: str, shape: str, key: str, parse: Callable[[Any], T]) -> list[T]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        return [parse(item) for item in content[key]]
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} does not hold {shape}: {error}") from None


def _offset_in_file(item: Any) -> tuple[TopicPartition, int]:
    if not isinstance(item["topic"], str) or not all(
        type(item[key]) is int for key in ("partition", "offset")
    ):
        raise ValueError(f"{item} is not an offset of a partition")
    return TopicPartition(item["topic"], item["partition"]), item["offset"]


def _partition_in_file(item: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    replicas = item.get("replicas", [])
    if not isinstance(item["topic"], str) or not all(
        type(it) is int for it in (item["partition"], *replicas)
    ):
        raise ValueError(f"{item} is not a partition")
    return TopicPartition(item["topic"], item["partition"]), tuple(replicas)


def _reassignment_in_file(item: Any) -> tuple[TopicPartition, list[tuple[int, str]]]:
    partition, replicas = _partition_in_file(item)
    directories = item.get("log_dirs", [ANY] * len(replicas))
    if len(directories) != len(replicas):
        raise ValueError(f"{partition} has {len(replicas)} replicas and {len(directories)} log_dirs")
    if not all(isinstance(directory, str) for directory in directories):
        raise ValueError(f"the log_dirs of {partition} are not paths")
    return partition, list(zip(replicas, directories, strict=True))
