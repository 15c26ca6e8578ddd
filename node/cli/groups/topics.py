"""The ``--topic`` options of ``pykraft consumer-groups``: ``topic``, or ``topic:0,1,2`` for some of its partitions."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError


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
