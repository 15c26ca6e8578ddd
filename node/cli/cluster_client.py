"""What the commands share that ask a cluster: the admin client, files that name partitions."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers

_REACH_TIMEOUT_S = 5.0
_REACH_RETRY_S = 0.1
_SHAPE = '{"partitions": [{"topic": "t", "partition": 0, …}, …]}'


@contextlib.contextmanager
def admin_client(bootstrap_server: str) -> Iterator[AdminClient]:
    """An admin client; a malformed address is a usage error."""
    try:
        _check_reachable(bootstrap_server)
        client = AdminClient(bootstrap_server)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with client:
        yield client


def _check_reachable(bootstrap_server: str) -> None:
    """The client itself would go on trying for a minute, in case the cluster is just starting."""
    deadline = time.monotonic() + _REACH_TIMEOUT_S
    while True:
        for address in parse_bootstrap_servers(bootstrap_server):
            with contextlib.suppress(OSError):
                left = max(deadline - time.monotonic(), _REACH_RETRY_S)
                socket.create_connection((address.host, address.port), timeout=left).close()
                return
        if time.monotonic() >= deadline:
            raise click.ClickException(f"nobody listens at {bootstrap_server}")
        time.sleep(_REACH_RETRY_S)


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
