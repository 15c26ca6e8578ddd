"""``pykraft leader-election``, with the flags and messages of kafka-leader-election."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import PartitionOutcome
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import json_option, print_json, wants_json
from pykraft.node.cli.shared.partition_files import read_partitions_file


@click.command()
@cluster_options(names={"--command-config": ("--admin.config",)})
@click.option(
    "--election-type",
    required=True,
    type=click.Choice([kind.name for kind in ElectionType], case_sensitive=False),
    help="PREFERRED: the first replica, if it is in sync. UNCLEAN: any live one, if there is no leader.",
)
@click.option("--topic", help="The topic of one partition.")
@click.option("--partition", type=click.IntRange(min=0), help="The number of that partition.")
@click.option("--all-topic-partitions", is_flag=True, help="Every partition that needs an election.")
@click.option(
    "--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 0}, …]}'
)
@json_option
def command(
    target: Target,
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: str | None,
) -> None:
    """Elect leaders."""
    if (topic is not None) + all_topic_partitions + (path_to_json_file is not None) != 1:
        raise click.UsageError("give one of --topic, --all-topic-partitions, --path-to-json-file")
    if (topic is None) != (partition is None):
        raise click.UsageError("give --topic and --partition together")
    asked: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        asked = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        asked = [it for it, _ in read_partitions_file(path_to_json_file)]
    kind = ElectionType[election_type.upper()]
    with target.client() as client:
        outcomes = client.elect_leaders(kind, asked)
    if wants_json():
        print_json([_as_object(it) for it in outcomes])
    else:
        _print(kind, outcomes)
    failed = [it for it in outcomes if it.error and it.error.code is not ErrorCode.ELECTION_NOT_NEEDED]
    if failed:
        reasons = "; ".join(f"{it.partition}: {it.error}" for it in failed)
        raise click.ClickException(f"{len(failed)} replica(s) could not be elected: {reasons}")


def _print(kind: ElectionType, outcomes: Sequence[PartitionOutcome]) -> None:
    elected = [it.partition for it in outcomes if it.error is None]
    if elected:
        click.echo(f"Successfully completed leader election ({kind.name}) for partitions {_names(elected)}")
    failed = [(it.partition, it.error) for it in outcomes if it.error is not None]
    valid = [partition for partition, error in failed if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    if valid:
        click.echo(f"Valid replica already elected for partitions {_names(valid)}")


def _as_object(outcome: PartitionOutcome) -> dict[str, object]:
    topic, partition = outcome.partition
    return {"topic": topic, "partition": partition, "error": outcome.error and outcome.error.code.name}


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
