"""``pykraft reassign-partitions``, with the flags, files and messages of kafka-reassign-partitions.

Throttles are not set, and replicas are not moved between the directories of one broker: ``log_dirs`` other
than "any" are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import PartitionOutcome, PartitionReassignment
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.cluster_client import admin_client, read_partitions_file
from pykraft.node.cli.common import bootstrap_option, json_option, one_action, print_json, wants_json

Replicas = Mapping[TopicPartition, Sequence[int]]


@click.command()
@bootstrap_option
@click.option("--execute", is_flag=True, help="Start to move the partitions of the file.")
@click.option("--verify", is_flag=True, help="Show the progress of the moves of the file.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of the file that are under way.")
@click.option("--list", "list_", is_flag=True, help="Show all moves under way.")
@click.option(
    "--reassignment-json-file",
    metavar="FILE",
    help='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}, …]}',
)
@click.option("--additional", is_flag=True, help="Execute: even while other moves are under way.")
@json_option
def command(
    bootstrap_server: str,
    execute: bool,
    verify: bool,
    cancel: bool,
    list_: bool,
    reassignment_json_file: str | None,
    additional: bool,
) -> None:
    """Move replicas between brokers."""
    action = one_action({"execute": execute, "verify": verify, "cancel": cancel, "list": list_})
    wanted: dict[TopicPartition, Sequence[int]] = {}
    if action != "list":
        if reassignment_json_file is None:
            raise click.UsageError(f"--{action} needs --reassignment-json-file")
        for partition, replicas in read_partitions_file(reassignment_json_file):
            if not replicas:
                raise click.UsageError(f"{partition} has no replicas in {reassignment_json_file}")
            wanted[partition] = replicas
    with admin_client(bootstrap_server) as client:
        if action == "list":
            _list(client)
        elif action == "execute":
            _execute(client, wanted, additional)
        elif action == "verify":
            _verify(client, wanted)
        else:
            _cancel(client, wanted)


def _list(client: AdminClient) -> None:
    ongoing = client.list_partition_reassignments()
    if wants_json():
        print_json([_ongoing(partition, ongoing[partition]) for partition in sorted(ongoing)])
        return
    if not ongoing:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for partition in sorted(ongoing):
        move = ongoing[partition]
        text = f"{partition}: replicas: {_ids(move.replicas)}."
        text += f" adding: {_ids(move.adding)}." if move.adding else ""
        text += f" removing: {_ids(move.removing)}." if move.removing else ""
        click.echo(text)


def _ongoing(partition: TopicPartition, move: PartitionReassignment) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": move.replicas,
        "addingReplicas": move.adding,
        "removingReplicas": move.removing,
    }


def _execute(client: AdminClient, wanted: Replicas, additional: bool) -> None:
    if not additional and client.list_partition_reassignments():
        raise click.ClickException(
            "Cannot execute because there is an existing partition assignment. Use --additional to override "
            "this and create a new partition assignment in addition to the existing one."
        )
    current = _current(client, wanted)
    click.echo(f"Current partition replica assignment\n\n{_as_json(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    outcomes = client.alter_partition_reassignments(wanted)
    _refuse_failures(outcomes, "Error reassigning partition(s):")
    click.echo(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")


def _verify(client: AdminClient, wanted: Replicas) -> None:
    current, ongoing = _current(client, wanted), client.list_partition_reassignments()
    if wants_json():
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(current.get(partition, ())),
                    "targetReplicas": list(wanted[partition]),
                    "inProgress": partition in ongoing,
                }
                for partition in sorted(wanted)
            ]
        )
        return
    click.echo("Status of partition reassignment:")
    for partition in sorted(wanted):
        if partition in ongoing:
            click.echo(f"Reassignment of partition {partition} is still in progress.")
        elif tuple(current.get(partition, ())) == tuple(wanted[partition]):
            click.echo(f"Reassignment of partition {partition} is completed.")
        else:
            click.echo(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{_ids(current.get(partition, ()))} rather than {_ids(wanted[partition])}."
            )


def _cancel(client: AdminClient, wanted: Replicas) -> None:
    under_way = [partition for partition in client.list_partition_reassignments() if partition in wanted]
    if not under_way:
        click.echo("None of the specified partition moves are active.")
        return
    outcomes = client.alter_partition_reassignments(dict.fromkeys(under_way))
    _refuse_failures(outcomes, "Error cancelling partition reassignment(s) for:")
    click.echo(f"Successfully cancelled partition reassignment{_plural(under_way)} for: {_names(under_way)}")


def _current(client: AdminClient, wanted: Replicas) -> dict[TopicPartition, Sequence[int]]:
    topics = sorted({partition.topic for partition in wanted})
    replicas = {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in client.describe_topics(topics)
        for partition in topic.partitions
    }
    return {partition: replicas[partition] for partition in wanted if partition in replicas}


def _refuse_failures(outcomes: Iterable[PartitionOutcome], headline: str) -> None:
    failed = [f"{it.partition}: {it.error.code.name}: {it.error.message}" for it in outcomes if it.error]
    if failed:
        raise click.ClickException("\n".join([headline, *failed]))


def _as_json(replicas: Replicas) -> str:
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas[partition]),
            "log_dirs": ["any"] * len(replicas[partition]),
        }
        for partition in sorted(replicas)
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def _plural(items: Iterable[object]) -> str:
    return "s" if len(list(items)) > 1 else ""
