"""What the options of ``pykraft consumer`` say together: what is read, and with which settings of its client."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Final

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from pykraft.node.cli.console.librdkafka import given_settings
from pykraft.node.cli.console.librdkafka_properties import JAVA_DEFAULTS

_CLIENT_ID: Final = "console-consumer"
_OFFSETS: Final = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


def what_is_read(
    topic: str | None,
    include: re.Pattern[str] | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> str | re.Pattern[str] | TopicPartition:
    """A topic, an expression for topics, or a partition with its first offset. :class:`click.UsageError`."""
    if partition is None and offset is not None:
        raise click.UsageError("The partition is required when offset is specified.")
    if partition is not None and topic is None:
        raise click.UsageError("The topic is required when partition is specified.")
    if from_beginning and offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")
    if topic is not None and include is None:
        if partition is None:
            return topic
        return TopicPartition(topic, partition, _start(offset, from_beginning))
    if topic is None and include is not None:
        return include
    raise click.UsageError("give exactly one of --topic, --include")


def _start(offset: str | None, from_beginning: bool) -> int:
    if offset is None:
        return OFFSET_BEGINNING if from_beginning else OFFSET_END
    if offset.lower() in _OFFSETS:
        return _OFFSETS[offset.lower()]
    if offset.isascii() and offset.isdecimal() and int(offset) < 1 << 63:
        return int(offset)
    raise click.UsageError(f"--offset {offset!r} is not earliest, latest or a number")


def consumer_settings(
    given: Mapping[str, str], group: str | None, *, is_assigned: bool, from_beginning: bool
) -> dict[str, str]:
    """Those of the client. Without a group it is alone in one that nobody else names, and commits nothing.

    :class:`click.UsageError` for what contradicts.
    """
    groups = sorted({it for it in (group, given.get("group.id")) if it is not None})
    if len(groups) > 1:
        raise click.UsageError(f"--group and the property group.id do not match: {', '.join(groups)}")
    if groups and is_assigned:
        raise click.UsageError("Options group and partition cannot be specified together.")
    reset = given.get("auto.offset.reset")
    if from_beginning and reset not in (None, "earliest"):
        raise click.UsageError(f"--from-beginning contradicts the property auto.offset.reset={reset}")
    ours = {
        "client.id": _CLIENT_ID,
        "enable.auto.commit": str(bool(groups)).lower(),
        # With the default of one second, a short topic would be printed with pauses.
        "fetch.queue.backoff.ms": "10",
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        **JAVA_DEFAULTS,
    }
    fixed = {
        "group.id": groups[0] if groups else f"console-consumer-{random.randrange(100_000)}",
        "enable.auto.offset.store": "false",  # the reader stores what it has written
    }
    return ours | {**given, **given_settings()} | fixed
