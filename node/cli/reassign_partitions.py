"""``pykraft reassign-partitions``, with the flags, files and messages of kafka-reassign-partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import PartitionOutcome, PartitionReassignment
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.metadata_log.controller.placement import place_replicas
from pykraft.node.cli.cluster_client import admin_client, read_reassignment_file, read_topics_file
from pykraft.node.cli.common import bootstrap_option, json_option, one_action, print_json, wants_json
from pykraft.node.cli.directory_moves import (
    ANY,
    Directories,
    Replica,
    cancel_moves,
    find_places,
    start_moves,
)
from pykraft.node.cli.reassignment_progress import print_progress, progress_as_objects
from pykraft.node.cli.reassignment_throttles import (
    Replicas,
    clear_throttles,
    find_moves,
    set_directory_throttle,
    set_throttles,
)


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
    help='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": '
    '["any", "/data/2"]}, …]}. log_dirs may be left out; a path moves the replica there on its broker.',
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
@click.option(
    "--replica-alter-log-dirs-throttle",
    "directory_throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Execute: copy so many bytes a second at most between the directories of each broker. --verify "
    "removes this throttle, too.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Execute, cancel: how long to wait until moves to directories have begun.",
)
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Execute: refuse partitions whose number of replicas would change.",
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
    directory_throttle: int | None,
    timeout_ms: int,
    disallow_replication_factor_change: bool,
    preserve_throttles: bool,
) -> None:
    """Move replicas between brokers, and between the directories of a broker."""
    action = one_action(
        {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_}
    )
    for option, is_given in {
        "--throttle": throttle is not None,
        "--replica-alter-log-dirs-throttle": directory_throttle is not None,
        "--disallow-replication-factor-change": disallow_replication_factor_change,
    }.items():
        if is_given and action != "execute":
            raise click.UsageError(f"{option} is an option of --execute")
    if action == "generate":
        if topics_to_move_json_file is None or broker_list is None:
            raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
        topics, brokers = read_topics_file(topics_to_move_json_file), _broker_ids(broker_list)
        with admin_client(bootstrap_server) as client:
            _generate(client, topics, brokers, use_racks=not disable_rack_aware)
        return
    wanted: Replicas = {}
    directories: Directories = {}
    if action != "list":
        if reassignment_json_file is None:
            raise click.UsageError(f"--{action} needs --reassignment-json-file")
        wanted, directories = read_reassignment_file(reassignment_json_file)
    with admin_client(bootstrap_server) as client:
        if action == "list":
            _list(client)
        elif action == "execute":
            throttles = Throttles(throttle, directory_throttle)
            may_change = not disallow_replication_factor_change
            _execute(
                client, wanted, directories, throttles, additional=additional, may_change_factor=may_change
            )
            if directories:
                start_moves(client, directories, timeout_ms)
        elif action == "verify":
            _verify(client, wanted, directories, preserve_throttles)
        else:
            _cancel(client, wanted)
            cancel_moves(client, directories, timeout_ms)
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
    click.echo(f"Current partition replica assignment\n{_as_json(current, _directories(client, current))}\n")
    click.echo(f"Proposed partition reassignment configuration\n{_as_json(proposed)}")


class Throttles(NamedTuple):
    """Bytes a second between brokers, and between the directories of a broker; None: as they are."""

    brokers: int | None
    directories: int | None


def _execute(
    client: AdminClient,
    wanted: Replicas,
    directories: Directories,
    throttles: Throttles,
    *,
    additional: bool,
    may_change_factor: bool,
) -> None:
    ongoing = client.list_partition_reassignments()
    if not additional and ongoing:
        raise click.ClickException(
            "Cannot execute because there is an existing partition assignment. Use --additional to override "
            "this and create a new partition assignment in addition to the existing one. The --additional flag "
            "can also be used to change the throttle by resubmitting the current reassignment."
        )
    current = _current(client, wanted)
    where = _directories(client, current)
    click.echo(f"Current partition replica assignment\n\n{_as_json(current, where)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if any(throttles):
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
            "throttle is removed."
        )
    if throttles.brokers is not None:
        set_throttles(client, find_moves(ongoing, wanted, current), throttles.brokers)
    if throttles.directories is not None:
        brokers = {replica.broker for replica in directories}
        set_directory_throttle(client, brokers, throttles.directories)
    outcomes = client.alter_partition_reassignments(wanted, allow_replication_factor_change=may_change_factor)
    _refuse_failures(outcomes, "Error reassigning partition(s):")
    click.echo(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")


def _verify(
    client: AdminClient, wanted: Replicas, directories: Directories, preserve_throttles: bool
) -> None:
    current, ongoing = _current(client, wanted), client.list_partition_reassignments()
    places = find_places(client, directories)
    if wants_json():
        print_json(progress_as_objects(wanted, current, ongoing, directories, places))
    else:
        print_progress(wanted, current, ongoing, directories, places)
    is_moving = any(place.future is not None for place in places.values())
    if not ongoing and not is_moving and not preserve_throttles:
        clear_throttles(client, wanted, quiet=wants_json())


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


def _directories(client: AdminClient, replicas: Replicas) -> Directories:
    """Where the replicas are, as far as their brokers tell."""
    asked = [Replica(broker, partition) for partition, brokers in replicas.items() for broker in brokers]
    places = find_places(client, asked)
    return {replica: place.current for replica, place in places.items() if place.current is not None}


def _as_json(replicas: Replicas, directories: Directories = MappingProxyType({})) -> str:
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas[partition]),
            "log_dirs": [directories.get(Replica(id, partition), ANY) for id in replicas[partition]],
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
