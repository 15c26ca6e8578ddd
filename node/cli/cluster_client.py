"""What the commands share that ask a cluster: the admin client, files that name partitions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.reach import check_reachable

_SHAPE = '{"partitions": [{"topic": "t", "partition": 0, …}, …]}'


@contextlib.contextmanager
def admin_client(bootstrap_server: str) -> Iterator[AdminClient]:
    """An admin client of a cluster that can be reached."""
    check_reachable(bootstrap_server)
    with AdminClient(bootstrap_server) as client:
        yield client


def read_partitions_file(path: str) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    """The partitions of a JSON file as Kafka's tools read it, with their replicas if it names any."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        found = [_partition_in_file(item) for item in content["partitions"]]
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} does not hold {_SHAPE}: {error}") from None
    named = [partition for partition, _ in found]
    if len(set(named)) != len(named):
        raise click.UsageError(f"{path} names a partition twice")
    return found


def _partition_in_file(item: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    replicas = item.get("replicas", [])
    if not isinstance(item["topic"], str) or not all(
        type(it) is int for it in (item["partition"], *replicas)
    ):
        raise ValueError(f"{item} is not a partition")
    if any(directory != "any" for directory in item.get("log_dirs", [])):
        raise ValueError("replicas cannot be moved to a directory: log_dirs must be any")
    return TopicPartition(item["topic"], item["partition"]), tuple(replicas)
