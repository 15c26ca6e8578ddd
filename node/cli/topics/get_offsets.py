"""``pykraft get-offsets``, with the flags and the output lines of kafka-get-offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import click

from pykraft.kafka_client.list_offsets import ListedOffset
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import json_option, print_json, wants_json
from pykraft.node.cli.shared.topic_patterns import topic_filter

_TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_PATTERN: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

Filter = Callable[[TopicPartition], bool]


@click.command()
@cluster_options()
@json_option
@click.option(
    "--topic-partitions",
    metavar="PATTERN,…",
    help="Which partitions: topic1:1 (one), topic2:0-3 (from 0 to 2), topic3:5- (from 5), topic4:-3 (below 3), "
    "topic5 (all). A topic may be a regular expression; without one, any topic.",
)
@click.option("--topic", metavar="NAME", help="The topics, as a regular expression; default: all.")
@click.option("--partitions", metavar="NUMBER,…", help="The numbers of the partitions; default: all.")
@click.option(
    "--time",
    default="latest",
    show_default=True,
    help="A timestamp in milliseconds, or -1 or latest, -2 or earliest, -3 or max-timestamp, -4 or "
    "earliest-local, -5 or latest-tiered, -6 or earliest-pending-upload.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out internal topics.")
def command(
    target: Target,
    topic_partitions: str | None,
    topic: str | None,
    partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
) -> None:
    """Show the first offset of each partition whose record is not older than --time.

    Partitions without such a record are left out.
    """
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _timestamp(time)
    if topic_partitions is not None:
        is_wanted = _any_of([_filter(pattern) for pattern in topic_partitions.split(",")])
    else:
        is_wanted = _of_topic(topic or ".*", _numbers(partitions))
    with target.client() as client:
        topics = [it.name for it in client.list_topics(include_internal=not exclude_internal_topics)]
        wanted = [
            partition
            for described in client.describe_topics(topics)
            for it in described.partitions
            if is_wanted(partition := TopicPartition(described.name, it.index))
        ]
        if not wanted:
            raise click.ClickException("Could not match any topic-partitions with the specified filters")
        found = client.list_each_offset(dict.fromkeys(wanted, timestamp))
    _print(found)


def _print(found: dict[TopicPartition, ListedOffset | KafkaError]) -> None:
    lines = []
    for partition in sorted(found, key=str):
        listed = found[partition]
        if isinstance(listed, KafkaError):
            click.echo(
                f"Skip getting offsets for topic-partition {partition} due to error: {listed}", err=True
            )
        elif listed.offset is not None:
            lines.append((partition, listed.offset))
    if wants_json():
        print_json([{"topic": it.topic, "partition": it.partition, "offset": at} for it, at in lines])
        return
    for partition, offset in lines:
        click.echo(f"{partition.topic}:{partition.partition}:{offset}")


def _timestamp(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(
            f"--time {text} is neither a timestamp nor one of {', '.join(_TIMES)}"
        ) from None


def _numbers(text: str | None) -> frozenset[int]:
    try:
        return frozenset(int(number) for number in text.split(",")) if text else frozenset()
    except ValueError:
        raise click.UsageError(f"--partitions expects numbers of partitions, not {text}") from None


def _any_of(filters: Iterable[Filter]) -> Filter:
    kept = list(filters)
    return lambda partition: any(is_wanted(partition) for is_wanted in kept)


def _filter(pattern: str) -> Filter:
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        raise click.UsageError(f"--topic-partitions: {pattern} is not TOPIC:PARTITIONS")
    topic, number, lower, upper = match.groups()
    is_topic = topic_filter(topic or ".*")
    if number:
        return lambda it: is_topic(it.topic) and it.partition == int(number)
    first, end = int(lower or 0), int(upper) if upper else None
    return lambda it: is_topic(it.topic) and first <= it.partition and (end is None or it.partition < end)


def _of_topic(topic: str, numbers: frozenset[int]) -> Filter:
    is_topic = topic_filter(topic)
    return lambda it: is_topic(it.topic) and (not numbers or it.partition in numbers)
