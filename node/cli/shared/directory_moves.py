"""Moves of replicas between the log directories of their brokers (KIP-113), as kafka-reassign-partitions has
them: begun, shown and cancelled.

A move to a directory of a broker that does not have the replica yet begins when the broker has it, so the
request is repeated for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.shared.common import say

ANY: Final = "any"
"""Stands in the files of kafka-reassign-partitions for a directory that the broker chooses."""
_PAUSE_MS: Final = 100


class Replica(NamedTuple):
    """One replica of a partition. Sorts as in the output of Kafka's tool."""

    broker: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


Directories = Mapping[Replica, str]


class Place(NamedTuple):
    """The directory that a replica is in, and the one that it is being moved to; None: there is none."""

    current: str | None = None
    future: str | None = None


def find_places(client: AdminClient, replicas: Iterable[Replica]) -> dict[Replica, Place]:
    """Where these replicas are, as far as brokers can be asked and directories have not failed."""
    asked = set(replicas)
    live = {broker.id for broker in client.describe_cluster().brokers} if asked else set()
    wanted = {replica for replica in asked if replica.broker in live}
    places = dict.fromkeys(wanted, Place())
    if not wanted:
        return places
    described = client.describe_log_dirs(sorted({replica.broker for replica in wanted}))
    for broker, log_dirs in described.items():
        for log_dir in log_dirs:
            if log_dir.error is not ErrorCode.NONE:
                continue
            for found in log_dir.replicas:
                replica = Replica(broker, found.partition)
                if replica in places:
                    kind = "future" if found.is_future else "current"
                    places[replica] = places[replica]._replace(**{kind: log_dir.path})
    return places


def start_moves(
    client: AdminClient,
    wanted: Directories,
    timeout_ms: int,
    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    sleep_ms: Callable[[int], None] = lambda pause_ms: time.sleep(pause_ms / 1000),
) -> None:
    """Begin these moves; an error if a broker refuses one, or one has not begun after ``timeout_ms``."""
    pending, until_ms = dict(wanted), now_ms() + timeout_ms
    while True:
        for replica in _start_some(client, pending):
            topic, index = replica.partition
            say(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{topic}-{index} with broker {replica.broker} "
            )
        if not pending:
            return
        if now_ms() >= until_ms:
            names = ",".join(map(str, sorted(pending)))
            raise click.ClickException(
                f"Timed out before log directory move{'s' if len(pending) > 1 else ''} could be started for: "
                f"{names}"
            )
        sleep_ms(_PAUSE_MS)


def _start_some(client: AdminClient, wanted: Directories) -> list[Replica]:
    """Ask each broker; the replicas that it moves, in order."""
    begun = []
    for broker in sorted({replica.broker for replica in wanted}):
        here = {replica.partition: path for replica, path in wanted.items() if replica.broker == broker}
        for partition, error in sorted(client.alter_replica_log_dirs(broker, here).items()):
            replica = Replica(broker, partition)
            if error is ErrorCode.NONE:
                begun.append(replica)
            elif error is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise click.ClickException(f"Failed to alter dir for {replica}: {error.name}")
    return begun


def cancel_moves(client: AdminClient, wanted: Directories, timeout_ms: int) -> None:
    """Cancel those of these moves that are under way: each replica is moved to where it is."""
    places = find_places(client, wanted)
    back = {
        replica: place.current
        for replica, place in places.items()
        if place.current is not None and place.future is not None
    }
    if back:
        start_moves(client, back, timeout_ms)
    else:
        say("None of the specified partition moves are active.")


def describe_move(replica: Replica, target: str, place: Place | None) -> str:
    """How far a move is. ``place`` None: its broker cannot be asked."""
    partition, broker = replica.partition, replica.broker
    if place is None:
        return f"Partition {partition} cannot be found in any live log directory on broker {broker}."
    if place.current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is likely an "
            "offline log directory on the broker."
        )
    if place.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    if place.future is not None:
        return (
            f"Partition {partition} on broker {broker} is being moved to log dir {place.future} instead of "
            f"{target}."
        )
    if place.current == target:
        return f"Reassignment of replica {replica} completed successfully."
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir {place.current} to "
        f"{target}."
    )
