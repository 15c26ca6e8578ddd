"""``pykraft reassign-partitions --verify``: how far moves are, as kafka-reassign-partitions prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import PartitionReassignment
from pykraft.node.cli.reassign.throttles import Replicas
from pykraft.node.cli.shared.directory_moves import Directories, Place, Replica, describe_move

Ongoing = Mapping[TopicPartition, PartitionReassignment]
Places = Mapping[Replica, Place]


def progress_as_objects(
    wanted: Replicas,
    current: Replicas,
    ongoing: Ongoing,
    directories: Directories,
    places: Places,
) -> list[dict[str, object]]:
    """The same with ``--json``."""

    def moves(partition: TopicPartition) -> list[dict[str, object]]:
        return [
            {
                "broker": replica.broker,
                "logDir": place.current,
                "futureLogDir": place.future,
                "targetLogDir": directories[replica],
            }
            for replica in sorted(directories)
            if replica.partition == partition
            for place in [places.get(replica, Place())]
        ]

    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(current.get(partition, ())),
            "targetReplicas": list(wanted[partition]),
            "inProgress": partition in ongoing,
            "directories": moves(partition),
        }
        for partition in sorted(wanted)
    ]


def print_progress(
    wanted: Replicas,
    current: Replicas,
    ongoing: Ongoing,
    directories: Directories,
    places: Places,
) -> None:
    """The lines of Kafka's tool; without moves to directories one of them is empty."""
    click.echo("Status of partition reassignment:")
    for partition in sorted(wanted):
        if partition in ongoing:
            click.echo(f"Reassignment of partition {partition} is still in progress.")
        elif tuple(current.get(partition, ())) == tuple(wanted[partition]):
            click.echo(f"Reassignment of partition {partition} is completed.")
        else:
            click.echo(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{_names(current.get(partition, ()))} rather than {_names(wanted[partition])}."
            )
    for replica in sorted(directories):
        click.echo(describe_move(replica, directories[replica], places.get(replica)))
    if not directories:
        click.echo()


def _names(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
