"""``pykraft reassign-partitions``, with the flags, files and messages of kafka-reassign-partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import PartitionOutcome, PartitionReassignment
from pykraft.node.cli.reassign.plans import (
    as_assignment,
    current_replicas,
    find_directories,
    ids,
    parse_broker_ids,
    propose,
)
from pykraft.node.cli.reassign.throttles import (
    Replicas,
    clear_throttles,
    find_moves,
    set_directory_throttle,
    set_throttles,
)
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    check_actions,
    compact_json,
    json_option,
    one_action,
    print_json,
    say,
    wants_json,
)
from pykraft.node.cli.shared.directory_moves import (
    Directories,
    Place,
    Replica,
    cancel_moves,
    describe_move,
    find_places,
    start_moves,
)
from pykraft.node.cli.shared.partition_files import read_reassignment_file, read_topics_file

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
                f"{_in_order(current.get(partition, ()))} rather than {_in_order(wanted[partition])}."
            )
    for replica in sorted(directories):
        click.echo(describe_move(replica, directories[replica], places.get(replica)))
    if not directories:
        click.echo()


def _in_order(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


@click.command()
@cluster_options(controllers=True)
@click.option(
    "--generate", is_flag=True, help="Propose where the topics of the file could be; moves nothing."
)
@click.option("--execute", is_flag=True, help="Start to move the partitions of the file.")
@click.option("--verify", is_flag=True, help="Show the progress of the moves of the file.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of the file that are under way.")
@click.option("--list", is_flag=True, help="Show all moves under way.")
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
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Execute: copy so many bytes a second at most between the directories of each broker. --verify "
    "removes this throttle, too.",
)
@click.option(
    "--timeout",
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
def command(target: Target, **given: Any) -> None:
    """Move replicas between brokers, and between the directories of a broker."""
    action = one_action({name: given[name] for name in ("generate", "execute", "verify", "cancel", "list")})
    _check(action, target, given)
    if action == "generate":
        topics = read_topics_file(given["topics_to_move_json_file"])
        brokers = parse_broker_ids(given["broker_list"])
        with target.client() as client:
            propose(client, topics, brokers, use_racks=not given["disable_rack_aware"])
        return
    wanted: Replicas = {}
    directories: Directories = {}
    if action != "list":
        wanted, directories = read_reassignment_file(given["reassignment_json_file"])
    if directories and target.is_controllers:
        raise click.UsageError("only brokers can move log_dirs: give --bootstrap-server")
    with target.client() as client:
        if action == "list":
            _list(client)
        elif action == "execute":
            _execute(client, wanted, directories, given)
        elif action == "verify":
            _verify(client, wanted, directories, given["preserve_throttles"])
        else:
            cancelled = _cancel(client, wanted)
            cancel_moves(client, directories, given["timeout"])
            if not given["preserve_throttles"]:
                clear_throttles(client, wanted, controllers=target.is_controllers)
            if wants_json():
                print_json({"cancelled": _as_objects(cancelled)})


_ONLY_WITH: Final[Mapping[str, Sequence[str]]] = {
    "reassignment-json-file": ("execute", "verify", "cancel"),
    **dict.fromkeys(("topics-to-move-json-file", "broker-list", "disable-rack-aware"), ("generate",)),
    **dict.fromkeys(
        (
            *("additional", "throttle", "replica-alter-log-dirs-throttle"),
            "disallow-replication-factor-change",
        ),
        ("execute",),
    ),
    "preserve-throttles": ("verify", "cancel"),
}
"""The actions with which an option may be given."""


def _check(action: str, target: Target, given: Mapping[str, Any]) -> None:
    """:class:`click.UsageError` for options that do not go together."""
    check_actions(action, given, _ONLY_WITH)
    if action == "generate":
        if given["topics_to_move_json_file"] is None or given["broker_list"] is None:
            raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
    elif action != "list" and given["reassignment_json_file"] is None:
        raise click.UsageError(f"--{action} needs --reassignment-json-file")
    if target.is_controllers and action not in ("cancel", "list"):
        raise click.UsageError("--bootstrap-controller is an option of --cancel, --list")


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
        text = f"{partition}: replicas: {ids(move.replicas)}."
        text += f" adding: {ids(move.adding)}." if move.adding else ""
        text += f" removing: {ids(move.removing)}." if move.removing else ""
        click.echo(text)


def _ongoing(partition: TopicPartition, move: PartitionReassignment) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": move.replicas,
        "addingReplicas": move.adding,
        "removingReplicas": move.removing,
    }


def _execute(
    client: AdminClient, wanted: Replicas, directories: Directories, given: Mapping[str, Any]
) -> None:
    throttle, directory_throttle = given["throttle"], given["replica_alter_log_dirs_throttle"]
    ongoing = client.list_partition_reassignments()
    if not given["additional"] and ongoing:
        raise click.ClickException(
            "Cannot execute because there is an existing partition assignment. Use --additional to override "
            "this and create a new partition assignment in addition to the existing one. The --additional flag "
            "can also be used to change the throttle by resubmitting the current reassignment."
        )
    _check_brokers(client, wanted)
    current = current_replicas(client, wanted)
    before = as_assignment(current, find_directories(client, current))
    say(f"Current partition replica assignment\n\n{compact_json(before)}\n")
    say("Save this to use as the --reassignment-json-file option during rollback")
    if throttle is not None or directory_throttle is not None:
        say(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
            "throttle is removed."
        )
    if throttle is not None:
        set_throttles(client, find_moves(ongoing, wanted, current), throttle)
    if directory_throttle is not None:
        set_directory_throttle(client, {replica.broker for replica in directories}, directory_throttle)
    outcomes = client.alter_partition_reassignments(
        wanted, allow_replication_factor_change=not given["disallow_replication_factor_change"]
    )
    _refuse_failures(outcomes, "Error reassigning partition(s):")
    say(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")
    if directories:
        start_moves(client, directories, given["timeout"])
    if wants_json():
        print_json({"current": before, "started": _as_objects(wanted)})


def _check_brokers(client: AdminClient, wanted: Replicas) -> None:
    known = {broker.id for broker in client.describe_cluster(include_fenced_brokers=True).brokers}
    for broker in sorted({broker for replicas in wanted.values() for broker in replicas} - known):
        raise click.ClickException(f"Unknown broker id {broker}")


def _verify(
    client: AdminClient, wanted: Replicas, directories: Directories, preserve_throttles: bool
) -> None:
    current, ongoing = current_replicas(client, wanted), client.list_partition_reassignments()
    places = find_places(client, directories)
    if wants_json():
        print_json(progress_as_objects(wanted, current, ongoing, directories, places))
    else:
        print_progress(wanted, current, ongoing, directories, places)
    is_moving = any(place.future is not None for place in places.values())
    if not ongoing and not is_moving and not preserve_throttles:
        clear_throttles(client, wanted)


def _cancel(client: AdminClient, wanted: Replicas) -> list[TopicPartition]:
    """The partitions whose move is cancelled."""
    under_way = [partition for partition in client.list_partition_reassignments() if partition in wanted]
    if not under_way:
        say("None of the specified partition reassignments are active.")
        return []
    outcomes = client.alter_partition_reassignments(dict.fromkeys(under_way))
    _refuse_failures(outcomes, "Error cancelling partition reassignment(s) for:")
    say(f"Successfully cancelled partition reassignment{_plural(under_way)} for: {_names(under_way)}")
    return under_way


def _refuse_failures(outcomes: Iterable[PartitionOutcome], headline: str) -> None:
    failed = [f"{it.partition}: {it.error}" for it in outcomes if it.error]
    if failed:
        raise click.ClickException(f"{headline} {'; '.join(failed)}")


def _as_objects(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [partition._asdict() for partition in sorted(partitions)]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _plural(items: Sized) -> str:
    return "s" if len(items) > 1 else ""
