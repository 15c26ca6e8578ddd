"""``pykraft consumer-groups --delete`` and ``--delete-offsets``, with the lines of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.common import print_json, wants_json
from pykraft.node.cli.group_topics import partitions_of
from pykraft.node.cli.kafka_errors import as_exception, text_of

_OF_THE_GROUP: Final = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)
_OF_A_PARTITION: Final = (
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def delete_groups(client: AdminClient, names: Sequence[str]) -> bool:
    """Whether all are deleted."""
    outcomes = client.delete_groups(names)
    deleted = ", ".join(f"'{it.name}'" for it in outcomes if it.error is None)
    failed = [(it.name, it.error) for it in outcomes if it.error is not None]
    if wants_json():
        print_json([{"group": it.name, "error": it.error and it.error.code.name} for it in outcomes])
    elif not failed:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
    else:
        click.echo("\nError: Deletion of some consumer groups failed:")
        for name, error in failed:
            click.echo(f"* Group '{name}' could not be deleted due to: {as_exception(error)}")
        if deleted:
            click.echo(f"\nThese consumer groups were deleted successfully: {deleted}")
    return not failed


def delete_offsets(client: AdminClient, group_id: str, topics: Sequence[str]) -> bool:
    """Whether the offsets of all partitions are deleted."""
    partitions, missing = partitions_of(client, topics)
    of_group: KafkaError | None = None
    results: dict[TopicPartition, KafkaError | None] = {
        TopicPartition(topic, -1): error for topic, error in missing.items()
    }
    try:
        results |= client.delete_group_offsets(group_id, partitions)
    except KafkaError as error:
        of_group = error
        results |= dict.fromkeys(partitions, error)
    if wants_json():
        print_json([_as_object(group_id, it, results[it]) for it in sorted(results)])
    else:
        refused = (results[it] for it in sorted(partitions))
        _print(group_id, of_group or next((it for it in refused if it is not None), None), results)
    return not any(results.values())


def _as_object(group_id: str, partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    index = partition.partition if partition.partition >= 0 else None
    name = error and error.code.name
    return {"group": group_id, "topic": partition.topic, "partition": index, "error": name}


def _print(group_id: str, first: KafkaError | None, results: dict[TopicPartition, KafkaError | None]) -> None:
    if first is None:
        click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
    elif first.code in _OF_THE_GROUP:
        click.echo(f"\nError: {text_of(first)}")
    elif first.code in _OF_A_PARTITION:
        click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        click.echo(f"\nError: Encountered some unknown error: {first.code.name}")
    width = max([15, *(len(it.topic) for it in results)])
    rows = [("TOPIC", "PARTITION", "STATUS")]
    for it in sorted(results, key=lambda it: f"{it.topic}{it.partition}"):
        error = results[it]
        status = "Successful" if error is None else f"Error: {as_exception(error)}"
        rows.append((it.topic, str(it.partition) if it.partition >= 0 else "-", status))
    for topic, partition, status in rows:
        click.echo(f"\n{topic:{width}} {partition:10} {status:15}", nl=False)
    click.echo()
