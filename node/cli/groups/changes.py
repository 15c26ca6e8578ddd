"""``pykraft consumer-groups --delete`` and ``--delete-offsets``, with the lines of kafka-consumer-groups; and the
``--topic`` options: ``topic``, or ``topic:0,1,2`` for some of its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.shared.common import print_json, wants_json
from pykraft.node.cli.shared.kafka_errors import text_of
from pykraft.node.cli.shared.tool_errors import report


def partitions_of(
    client: AdminClient, topics: Sequence[str]
) -> tuple[list[TopicPartition], dict[str, KafkaError]]:
    """The partitions, and the errors of topics that are named without partitions and do not exist.

    Partitions that are named are not looked up. :class:`click.UsageError` for what is neither.
    """
    found = {it: None for topic in topics if ":" in topic for it in _parse(topic)}
    missing: dict[str, KafkaError] = {}
    for topic in dict.fromkeys(topic for topic in topics if ":" not in topic):
        try:
            (described,) = client.describe_topics([topic])
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise
            missing[topic] = error
        else:
            found |= dict.fromkeys(TopicPartition(topic, it.index) for it in described.partitions)
    return list(found), missing


def _parse(argument: str) -> list[TopicPartition]:
    parts = argument.split(":")
    if len(parts) != 2 or not parts[1]:
        raise click.UsageError(f"Invalid topic arg '{argument}', expected topic name and partitions")
    topic, numbers = parts
    for number in numbers.split(","):
        if not (number.isascii() and number.isdecimal()):
            raise click.UsageError(f"Invalid partition '{number}' specified in topic arg '{argument}''")
    return [TopicPartition(topic, int(number)) for number in numbers.split(",")]


def delete_groups(client: AdminClient, names: Sequence[str]) -> None:
    outcomes = client.delete_groups(names)
    deleted = ", ".join(f"'{it.name}'" for it in outcomes if it.error is None)
    failed = [(it.name, it.error) for it in outcomes if it.error is not None]
    if wants_json():
        print_json([{"group": it.name, "error": it.error and it.error.code.name} for it in outcomes])
    elif not failed:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
    elif deleted:
        click.echo(f"These consumer groups were deleted successfully: {deleted}")
    report(f"Group '{name}' could not be deleted due to: {text_of(error)}" for name, error in failed)


def delete_offsets(client: AdminClient, group_id: str, topics: Sequence[str]) -> None:
    partitions, missing = partitions_of(client, topics)
    results: dict[TopicPartition, KafkaError | None] = {
        TopicPartition(topic, -1): error for topic, error in missing.items()
    }
    try:
        results |= client.delete_group_offsets(group_id, partitions)
    except KafkaError as error:
        results |= dict.fromkeys(partitions, error)
        reasons = [text_of(error)]  # of the whole group
    else:
        failed = {_name(it): error for it, error in sorted(results.items()) if error is not None}
        reasons = [
            f"Offsets of {name} could not be deleted due to: {text_of(it)}" for name, it in failed.items()
        ]
    if wants_json():
        print_json([_as_object(group_id, it, results[it]) for it in sorted(results)])
    elif done := [it for it in results if results[it] is None]:
        _print(group_id, done)
    report(reasons)


def _name(partition: TopicPartition) -> str:
    return str(partition) if partition.partition >= 0 else f"topic {partition.topic}"


def _as_object(group_id: str, partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    index = partition.partition if partition.partition >= 0 else None
    name = error and error.code.name
    return {"group": group_id, "topic": partition.topic, "partition": index, "error": name}


def _print(group_id: str, done: Sequence[TopicPartition]) -> None:
    click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
    width = max([15, *(len(it.topic) for it in done)])
    rows = [("TOPIC", "PARTITION", "STATUS")]
    rows += [(it.topic, str(it.partition), "Successful") for it in sorted(done, key=str)]
    for topic, partition, status in rows:
        click.echo(f"\n{topic:{width}} {partition:10} {status:15}", nl=False)
    click.echo()
