"""``pykraft log-dirs``, with the flags and the output lines of kafka-log-dirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from pykraft.kafka_client.results import LogDirDescription
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import compact_json, json_option, print_json, say, wants_json

_EXCEPTIONS: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "org.apache.kafka.common.errors.KafkaStorageException",
    ErrorCode.LOG_DIR_NOT_FOUND: "org.apache.kafka.common.errors.LogDirNotFoundException",
}
"""Kafka's tool names an error by the class of its exception."""


@click.command()
@cluster_options()
@click.option("--describe", is_flag=True, required=True, help="Describe the log directories.")
@click.option("--broker-list", metavar="ID,…", default="", help="Only these brokers; default: all.")
@click.option("--topic-list", metavar="NAME,…", default="", help="Only these topics; default: all.")
@json_option
def command(target: Target, describe: bool, broker_list: str, topic_list: str) -> None:
    """Show the log directories of brokers, the replicas in them and their sizes, as JSON.

    The JSON follows two lines of text, as with Kafka's tool; with --json it is alone.
    """
    try:
        wanted = {int(part) for part in broker_list.split(",") if part}
    except ValueError:
        raise click.UsageError(f"--broker-list {broker_list!r} does not hold numbers") from None
    topics = {part for part in topic_list.split(",") if part}
    with target.client() as client:
        existing = {broker.id for broker in client.describe_cluster().brokers}
        if not wanted <= existing:
            missing, there = (",".join(map(str, sorted(ids))) for ids in (wanted - existing, existing))
            raise click.ClickException(
                f"The given brokers do not exist from --broker-list: {missing}. Current existent brokers: {there}"
            )
        say("Querying brokers for log directories information")
        found = client.describe_log_dirs(sorted(wanted or existing))
    brokers = [{"broker": id, "logDirs": _as_objects(log_dirs, topics)} for id, log_dirs in found.items()]
    shown = {"brokers": brokers, "version": 1}
    if wants_json():
        print_json(shown)
        return
    click.echo(f"Received log directory information from brokers {','.join(map(str, found))}")
    click.echo(compact_json(shown))


def _as_objects(log_dirs: Sequence[LogDirDescription], topics: set[str]) -> list[Mapping[str, object]]:
    return [
        {
            "partitions": [
                {
                    "partition": f"{replica.partition.topic}-{replica.partition.partition}",
                    "size": replica.size_bytes,
                    "offsetLag": replica.offset_lag,
                    "isFuture": replica.is_future,
                }
                for replica in log_dir.replicas
                if not topics or replica.partition.topic in topics
            ],
            "error": None if not log_dir.error else _EXCEPTIONS.get(log_dir.error, log_dir.error.name),
            "logDir": log_dir.path,
        }
        for log_dir in log_dirs
    ]
