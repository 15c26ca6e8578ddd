"""The topics that ``pykraft dev --topics`` creates when the cluster is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.topics.topic_names import check_topic_name

MAX_PARTITIONS: Final = 10_000
_EXPECTED: Final = "expected NAME[:PARTITIONS[:REPLICATION_FACTOR]], with commas between several"


def parse_topics(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[NewTopic, ...]:
    """A callback for a repeatable option. A topic has one partition unless its number is given, and as many
    replicas as there are nodes, at most three (the server's default).
    """
    topics = [_parse(text.strip()) for option in given for text in option.split(",")]
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is there twice")
    return tuple(topics)


def _parse(text: str) -> NewTopic:
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(_is_number(number) for number in numbers):
        raise click.BadParameter(f"{text!r}: {_EXPECTED}")
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise click.BadParameter(f"{text!r}: {error.message}") from None
    counts = [int(number) for number in numbers]
    partitions = counts[0] if counts else 1
    if partitions > MAX_PARTITIONS:
        raise click.BadParameter(f"{text!r}: more than {MAX_PARTITIONS:,} partitions")
    return NewTopic(name, partitions, counts[1] if len(counts) > 1 else None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0


def check_replicas(topics: Sequence[NewTopic], nodes: int) -> None:
    """:class:`click.BadParameter` if a topic has more replicas than there are nodes."""
    for topic in topics:
        if (topic.replication_factor or 0) > nodes:
            many = f"{nodes} node{'s' if nodes > 1 else ''}"
            raise click.BadParameter(f"{topic.name}: {topic.replication_factor} replicas, but {many}")


def create_topics(bootstrap_servers: str, topics: Sequence[NewTopic]) -> list[str]:
    """Create those that are not there yet; what there is to say of each. :class:`KafkaError` if one fails."""
    from pykraft.kafka_client.admin.client import (
        AdminClient,  # a cluster without topics starts sooner without it
    )

    said = []
    with AdminClient(bootstrap_servers) as admin:
        for topic in topics:
            (created,) = admin.create_topics([topic])
            if created.error is None:
                said.append(f"{topic.name}: created")
            elif created.error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                said.append(f"{topic.name}: was there before, and is left as it is")
            else:
                raise KafkaError(created.error.code, f"topic {topic.name}: {created.error.message}")
    return said
