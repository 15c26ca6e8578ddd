"""``pykraft consumer``, with the flags of kafka-console-consumer. Reads through librdkafka."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

import click
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from pykraft.node.cli.common import Properties, bootstrap_option, pairs
from pykraft.node.cli.librdkafka import Connection, end_at_sigterm, usage_error

_STEP_S: Final = 0.2
_Headers = list[tuple[str, bytes | None]] | None
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--group", help="The consumer group; a group of its own by default, without commits.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record if no offset is committed.")
@click.option("--partition", type=click.IntRange(min=0), help="Read one partition only.")
@click.option("--offset", default=None, help="With --partition: earliest, latest or a number.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop after this time without a record.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE",
              help="print.key, print.offset, print.partition, print.timestamp, print.headers=true; key.separator.")  # fmt: skip
@click.option(
    "--consumer-property", multiple=True, metavar="KEY=VALUE", help="A librdkafka setting; repeatable."
)
def command(
    bootstrap_server: str,
    topic: str,
    group: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    properties: tuple[str, ...],
    consumer_property: tuple[str, ...],
) -> None:
    """Print the records of a topic, one per line."""
    printer = _Printer(properties)
    settings = {
        "group.id": group or f"console-consumer-{os.getpid()}",
        "enable.auto.commit": str(group is not None).lower(),
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        # With the default of one second, a short topic would be printed with pauses.
        "fetch.queue.backoff.ms": "10",
    } | pairs(consumer_property, "--consumer-property")
    first_offset = None if partition is None else _start(offset, from_beginning)
    connection = Connection(bootstrap_server, settings)
    try:
        consumer = Consumer(connection.settings)
    except KafkaException as error:
        raise usage_error(error) from None
    end_at_sigterm()
    seen = 0
    try:
        partitions = connection.first_answer(consumer, topic)
        if partition is None or first_offset is None:
            consumer.subscribe([topic])
        elif partition not in partitions:  # librdkafka would wait for it forever
            raise click.ClickException(f"topic {topic} has no partition {partition}")
        else:
            consumer.assign([TopicPartition(topic, partition, first_offset)])
        for message in _messages(consumer, connection, topic, timeout_ms):
            sys.stdout.buffer.write(printer.line(message))
            sys.stdout.buffer.flush()
            seen += 1
            if seen == max_messages:
                break
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()
    click.echo(f"Processed a total of {seen} messages", err=True)


def _messages(
    consumer: Consumer, connection: Connection, topic: str, timeout_ms: int | None
) -> Iterator[Message]:
    """Records until none arrives for ``timeout_ms``; :class:`click.ClickException` for errors."""
    last = time.monotonic()
    while timeout_ms is None or time.monotonic() - last < timeout_ms / 1000:
        message = consumer.poll(_STEP_S if timeout_ms is None else min(_STEP_S, timeout_ms / 1000))
        if message is None:
            connection.check(consumer, topic)
            continue
        failure = message.error()
        if failure is not None:
            raise click.ClickException(failure.str())
        yield message
        last = time.monotonic()


def _start(offset: str | None, from_beginning: bool) -> int:
    if offset is None:
        return OFFSET_BEGINNING if from_beginning else OFFSET_END
    if offset in _OFFSETS:
        return _OFFSETS[offset]
    if offset.isdigit():
        return int(offset)
    raise click.UsageError(f"--offset {offset!r} is not earliest, latest or a number")


class _Printer:
    """Formats records like Kafka's console consumer."""

    def __init__(self, properties: Iterable[str]) -> None:
        """``properties`` are the ``--property`` options. :class:`click.UsageError` for invalid ones."""
        parts: dict[str, Callable[[Message], bytes]] = {
            "print.timestamp": _timestamp,
            "print.partition": lambda message: f"Partition:{message.partition()}".encode(),
            "print.offset": lambda message: f"Offset:{message.offset()}".encode(),
            "print.headers": _headers,
            "print.key": lambda message: _text(message.key()),
        }
        printing = Properties(properties, (*parts, "key.separator"))
        self._separator = printing.separator("key.separator")
        self._parts = [part for name, part in parts.items() if printing.flag(name)]

    def line(self, message: Message) -> bytes:
        parts = [part(message) for part in self._parts]
        return self._separator.join([*parts, _text(message.value())]) + b"\n"


def _timestamp(message: Message) -> bytes:
    kind, timestamp = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind)
    return b"NO_TIMESTAMP" if name is None else f"{name}:{timestamp}".encode()


def _headers(message: Message) -> bytes:
    headers = cast(_Headers, message.headers()) or []
    return b",".join(name.encode() + b":" + _text(value) for name, value in headers) or b"NO_HEADERS"


def _text(value: bytes | str | None) -> bytes:
    if value is None:
        return b"null"
    return value.encode() if isinstance(value, str) else value
