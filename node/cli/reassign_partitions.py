"""``pykraft reassign-partitions``, with the flags, files and messages of kafka-reassign-partitions.

Replicas are not moved between the directories of one broker: ``log_dirs`` other than "any" are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import PartitionOutcome, PartitionReassignment
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.metadata_log.controller.placement import place_replicas
from pykraft.node.cli.cluster_client import admin_client, read_partitions_file, read_topics_file
from pykraft.node.cli.common import bootstrap_option, json_option, one_action, print_json, wants_json
from pykraft.node.cli.reassignment_throttles import Replicas, clear_throttles, find_moves, set_throttles


@click.command()
@bootstrap_option
@click.option(
    "--generate", is_flag=True, help="Propose where the topics of the file could be; moves nothing."
)
@click.option("--execute", is_flag=True, help="Start to move the partitions of the file.")
@click.option("--verify", is_flag=True, help="Show the progress of the moves of the file.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of the file that are under way.")
@click.option("--list", "list_", is_flag=True, help="Show all moves under way.")
@click.option(
    "--reassignment-json-file",
    metavar="FILE",
    help='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}, …]}',
)
@click.option(
    "--topics-to-move-json-file",
    metavar="FILE",
    help='Generate: {"version": 1, "topics": [{"topic": "t"}, …]}',
)
@click.option("--broker-list", metavar="ID,…", help="Generate: the brokers that may hold the replicas.")
@click.option("--disable-rack-aware", is_flag=True, help="Generate: without regard to racks.")
@click.option("--additional", is_flag=True, help="Execute: even while other moves are under way.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Execute: copy so many bytes a second at most, for each broker. Run --verify until all is moved: it "
    "removes the throttle. With --additional the rate of moves under way is changed.",
)
@click.option("--preserve-throttles", is_flag=True, help="Verify, cancel: leave throttles as they are.")
@json_option
def command(
    bootstrap_server: str,
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
    list_: bool,
    reassignment_json_file: str | None,
    topics_to_move_json_file: str | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    additional: bool,
    throttle: int | None,
    preserve_throttles: bool,
) -> None:
    """Move replicas between brokers."""
    action = one_action(
        {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_}
    )
    if throttle is not None and action != "execute":
        raise click.UsageError("--throttle is an option of --execute")
    wanted: dict[TopicPartition, Sequence[int]] = {}
    if action == "generate":
        if topics_to_move_json_file is None or broker_list is None:
            raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
        topics, brokers = read_topics_file(topics_to_move_json_file), _broker_ids(broker_list)
        with admin_client(bootstrap_server) as client:
            _generate(client, topics, brokers, use_racks=not disable_rack_aware)
        return
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
            _execute(client, wanted, additional, throttle)
        elif action == "verify":
            _verify(client, wanted, preserve_throttles)
        else:
            _cancel(client, wanted)
            if not preserve_throttles:
                clear_throttles(client, wanted)


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


def _broker_ids(text: str) -> list[int]:
    try:
        brokers = [int(item) for item in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list expects ids of brokers, not {text}") from None
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {text} names a broker twice")
    return brokers


def _generate(client: AdminClient, topics: Sequence[str], brokers: Sequence[int], *, use_racks: bool) -> None:
    current = _all_replicas(client, topics)
    racks = {broker.id: broker.rack for broker in client.describe_cluster().brokers if broker.id in brokers}
    if missing := sorted(set(brokers) - racks.keys()):
        raise click.ClickException(f"no such brokers: {_ids(missing)}")
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
    click.echo(f"Current partition replica assignment\n{_as_json(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{_as_json(proposed)}")


def _execute(client: AdminClient, wanted: Replicas, additional: bool, throttle: int | None) -> None:
    ongoing = client.list_partition_reassignments()
    if not additional and ongoing:
        raise click.ClickException(
            "Cannot execute because there is an existing partition assignment. Use --additional to override "
            "this and create a new partition assignment in addition to the existing one."
        )
    current = _current(client, wanted)
    click.echo(f"Current partition replica assignment\n\n{_as_json(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if throttle is not None:
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
            "throttle is removed."
        )
        set_throttles(client, find_moves(ongoing, wanted, current), throttle)
    outcomes = client.alter_partition_reassignments(wanted)
    _refuse_failures(outcomes, "Error reassigning partition(s):")
    click.echo(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")


def _verify(client: AdminClient, wanted: Replicas, preserve_throttles: bool) -> None:
    current, ongoing = _current(client, wanted), client.list_partition_reassignments()
    _print_progress(wanted, current, ongoing)
    if not ongoing and not preserve_throttles:
        clear_throttles(client, wanted, quiet=wants_json())


def _print_progress(
    wanted: Replicas, current: Replicas, ongoing: Mapping[TopicPartition, PartitionReassignment]
) -> None:
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
    click.echo()


def _cancel(client: AdminClient, wanted: Replicas) -> None:
    under_way = [partition for partition in client.list_partition_reassignments() if partition in wanted]
    if not under_way:
        click.echo("None of the specified partition reassignments are active.")
        return
    outcomes = client.alter_partition_reassignments(dict.fromkeys(under_way))
    _refuse_failures(outcomes, "Error cancelling partition reassignment(s) for:")
    click.echo(f"Successfully cancelled partition reassignment{_plural(under_way)} for: {_names(under_way)}")


def _current(client: AdminClient, wanted: Replicas) -> dict[TopicPartition, Sequence[int]]:
    replicas = _all_replicas(client, sorted({partition.topic for partition in wanted}))
    return {partition: replicas[partition] for partition in wanted if partition in replicas}


def _all_replicas(client: AdminClient, topics: Sequence[str]) -> dict[TopicPartition, Sequence[int]]:
    return {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in client.describe_topics(topics)
        for partition in topic.partitions
    }


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
