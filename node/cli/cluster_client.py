"""Shared code of commands that use a cluster: the admin client, files that name partitions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.directory_moves import ANY, Replica
from pykraft.node.cli.reach import check_reachable

_TIMEOUT_MS: Final = 15_000
_TIMEOUT_HINT: Final = "is a majority of the controllers running? Their logs name the leader"
T = TypeVar("T")

OFFSETS_SHAPE: Final = '{"partitions": [{"topic": "t", "partition": 0, "offset": 42}, …], "version": 1}'
_SHAPE = '{"partitions": [{"topic": "t", "partition": 0, …}, …]}'


@contextlib.contextmanager
def admin_client(
    bootstrap_server: str, timeout_ms: int = _TIMEOUT_MS, settings: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[AdminClient]:
    """An admin client of a cluster that can be reached; each request may take ``timeout_ms``.

    ``settings`` are other fields of :class:`~pykraft.kafka_client.cluster.ClientConfig`.
    """
    check_reachable(bootstrap_server)
    settings = {"default_api_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms, **settings}
    with AdminClient(bootstrap_server, **settings) as client:
        try:
            yield client
        except KafkaError as error:
            last = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
            if last.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise KafkaError(error.code, f"{error.message}; {_TIMEOUT_HINT}") from error


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
