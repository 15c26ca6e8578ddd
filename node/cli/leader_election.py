"""``pykraft leader-election``, with the flags and messages of kafka-leader-election."""

from __future__ import annotations

import click

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.cluster_client import admin_client, read_partitions_file
from pykraft.node.cli.common import bootstrap_option


@click.command()
@bootstrap_option
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
def command(
    bootstrap_server: str,
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
    with admin_client(bootstrap_server) as client:
        outcomes = client.elect_leaders(kind, asked)
    elected = [it.partition for it in outcomes if it.error is None]
    not_needed = [
        it.partition for it in outcomes if it.error and it.error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    failed = [it for it in outcomes if it.error and it.error.code is not ErrorCode.ELECTION_NOT_NEEDED]
    if elected:
        click.echo(f"Successfully completed leader election ({kind.name}) for partitions {_names(elected)}")
    if not_needed:
        click.echo(f"Valid replica already elected for partitions {_names(not_needed)}")
    for it in failed:
        error = it.error
        assert error is not None
        click.echo(
            f"Error completing leader election ({kind.name}) for partition: {it.partition}: "
            f"{error.code.name}: {error.message}",
            err=True,
        )
    if failed:
        raise click.ClickException(f"{len(failed)} replica(s) could not be elected")


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
