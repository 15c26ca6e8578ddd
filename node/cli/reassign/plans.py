"""Assignments of replicas, as kafka-reassign-partitions reads and prints them: the present one, and a proposal
for other brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from types import MappingProxyType

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.metadata_log.controller.topics.placement import place_replicas
from pykraft.node.cli.reassign.throttles import Replicas
from pykraft.node.cli.shared.common import compact_json, print_json, wants_json
from pykraft.node.cli.shared.directory_moves import ANY, Directories, Replica, find_places


def parse_broker_ids(text: str) -> list[int]:
    """``--broker-list``; :class:`click.UsageError` unless it names brokers once each."""
    try:
        brokers = [int(item) for item in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list expects ids of brokers, not {text}") from None
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {text} names a broker twice")
    return brokers


def propose(client: AdminClient, topics: Sequence[str], brokers: Sequence[int], *, use_racks: bool) -> None:
    """Print where the replicas of these topics are, and where on these brokers they could be."""
    current = all_replicas(client, topics)
    racks = {broker.id: broker.rack for broker in client.describe_cluster().brokers if broker.id in brokers}
    if missing := sorted(set(brokers) - racks.keys()):
        raise click.ClickException(f"no such brokers: {ids(missing)}")
    if not use_racks:
        racks = dict.fromkeys(racks)
    elif None in racks.values() and any(racks.values()):
        raise click.ClickException(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    proposed: dict[TopicPartition, Sequence[int]] = {}
    for topic in topics:
        partitions = sorted(partition for partition in current if partition.topic == topic)
        placed = place_replicas(racks, len(partitions), len(current[partitions[0]]), Random())
        proposed.update(zip(partitions, placed, strict=True))
    now, then = as_assignment(current, find_directories(client, current)), as_assignment(proposed)
    if wants_json():
        print_json({"current": now, "proposed": then})
        return
    click.echo(f"Current partition replica assignment\n{compact_json(now)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{compact_json(then)}")


def all_replicas(client: AdminClient, topics: Sequence[str]) -> dict[TopicPartition, Sequence[int]]:
    return {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in client.describe_topics(topics)
        for partition in topic.partitions
    }


def current_replicas(client: AdminClient, wanted: Replicas) -> dict[TopicPartition, Sequence[int]]:
    """The replicas of those partitions of ``wanted`` that exist."""
    replicas = all_replicas(client, sorted({partition.topic for partition in wanted}))
    return {partition: replicas[partition] for partition in wanted if partition in replicas}


def find_directories(client: AdminClient, replicas: Replicas) -> Directories:
    """Where the replicas are, as far as their brokers tell."""
    asked = [Replica(broker, partition) for partition, brokers in replicas.items() for broker in brokers]
    places = find_places(client, asked)
    return {replica: place.current for replica, place in places.items() if place.current is not None}


def as_assignment(replicas: Replicas, directories: Directories = MappingProxyType({})) -> dict[str, object]:
    """The content of a file for ``--reassignment-json-file``."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas[partition]),
            "log_dirs": [directories.get(Replica(id, partition), ANY) for id in replicas[partition]],
        }
        for partition in sorted(replicas)
    ]
    return {"version": 1, "partitions": partitions}


def ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))
