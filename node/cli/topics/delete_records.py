"""``pykraft delete-records``, with the flags, the file and the output lines of kafka-delete-records."""

from __future__ import annotations

import click

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import json_option, print_json, say, wants_json
from pykraft.node.cli.shared.partition_files import OFFSETS_SHAPE, read_offsets_file
from pykraft.node.cli.shared.tool_errors import report


@click.command()
@cluster_options()
@json_option
@click.option(
    "--offset-json-file",
    required=True,
    metavar="FILE",
    help=f"{OFFSETS_SHAPE}; offset -1: all records up to the high watermark.",
)
def command(target: Target, offset_json_file: str) -> None:
    """Delete the records before the given offsets."""
    offsets = read_offsets_file(offset_json_file)
    with target.client() as client:
        say("Executing records delete operation")
        results = client.delete_records(offsets)
    if wants_json():
        print_json([_as_object(partition, results[partition]) for partition in sorted(results)])
    else:
        click.echo("Records delete operation completed:")
        for partition in sorted(results):
            if not isinstance(results[partition], KafkaError):
                click.echo(f"partition: {partition}\tlow_watermark: {results[partition]}")
    report(
        f"{partition}: {result}"
        for partition, result in sorted(results.items())
        if isinstance(result, KafkaError)
    )


def _as_object(partition: TopicPartition, result: int | KafkaError) -> dict[str, object]:
    found = {"error": str(result)} if isinstance(result, KafkaError) else {"lowWatermark": result}
    return {"topic": partition.topic, "partition": partition.partition, **found}
