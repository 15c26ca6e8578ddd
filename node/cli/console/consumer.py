"""``pykraft consumer``, with the flags of kafka-console-consumer. Reads through librdkafka."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from pykraft.configuration.keys import BOOLEAN, ConfigKey
from pykraft.node.cli.console.consumed_record import Formatter
from pykraft.node.cli.console.librdkafka import Connection, given_settings, make_consumer, setting_option
from pykraft.node.cli.console.librdkafka_properties import JAVA_DEFAULTS, number
from pykraft.node.cli.console.record_formatters import DEFAULT, NAMES, find_formatter
from pykraft.node.cli.console.record_reader import RecordReader
from pykraft.node.cli.console.text_formatters import PROPERTIES, json_formatter
from pykraft.node.cli.console.topic_subscription import Subscription
from pykraft.node.cli.shared.common import bootstrap_option, json_option, version_option, wants_json
from pykraft.node.cli.shared.interrupts import exit_status, interrupted_by_sigterm
from pykraft.node.cli.shared.kafka_command import KafkaCommand, regex
from pykraft.node.cli.shared.property_options import GivenProperties, property_options

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


_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
_METADATA_MAX_AGE: Final = "metadata.max.age.ms"
_EXCLUDE_INTERNAL: Final = ConfigKey("exclude.internal.topics", BOOLEAN, None, "")


@click.command(cls=KafkaCommand)
@bootstrap_option
@click.option("--topic", help="The topic to read.")
@click.option(
    "--include",
    type=regex,
    metavar="REGEX",
    help="Read the topics that match, also those that are created later.",
)
@click.option("--group", help="The consumer group; a group of its own by default, without commits.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record if no offset is committed.")
@click.option("--partition", type=click.IntRange(min=0), help="Read one partition only; without a group.")
@click.option("--offset", help="With --partition: earliest, latest (the default) or a number.")
@click.option("--max-messages", type=click.IntRange(min=-1), default=-1, help="Stop after this many records.")
@click.option("--timeout-ms", type=int, default=-1, help="Stop after this time without a record.")
@setting_option(
    "--isolation-level",
    "isolation.level",
    type=click.Choice(_ISOLATION_LEVELS),
    help="read_uncommitted by default.",
)
@click.option("--skip-message-on-error", is_flag=True, help="Leave out records that cannot be printed.")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@click.option("--formatter", metavar="NAME", help=f"A class of Kafka's, or {NAMES}.")
@click.option("--key-deserializer", metavar="NAME", help="A deserializer of Kafka's, by class or as integer.")
@click.option("--value-deserializer", metavar="NAME", help="The same for values.")
@property_options("printing", ("--formatter-property", "--property"), ("--formatter-config",),
                  "the formatter", PROPERTIES)  # fmt: skip
@property_options("of_client", ("--command-property", "--consumer-property"), ("--command-config", "--consumer.config"),
                  "Kafka's consumer or of librdkafka")  # fmt: skip
@json_option
@version_option()
def command(
    bootstrap_server: str,
    topic: str | None,
    include: re.Pattern[str] | None,
    group: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_messages: int,
    timeout_ms: int,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    formatter: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    printing: GivenProperties,
    of_client: GivenProperties,
) -> None:
    """Print the records of topics, one per line.

    An offset is committed only when everything before it was written to standard output. With --json each
    record is an object.
    """
    wanted = what_is_read(topic, include, partition, offset, from_beginning)
    write = _formatter(formatter, key_deserializer, value_deserializer, printing)
    settings = of_client.values
    with_internal = not _EXCLUDE_INTERNAL.parse(settings.pop(_EXCLUDE_INTERNAL.name, "true"))
    refresh_ms = number(_METADATA_MAX_AGE, settings.get(_METADATA_MAX_AGE, "300000"))
    settings = consumer_settings(
        settings, group, is_assigned=partition is not None, from_beginning=from_beginning
    )
    connection = Connection(bootstrap_server, settings)
    consumer = make_consumer(connection)
    subscription = Subscription(
        consumer, connection, wanted, with_internal=with_internal, refresh_s=refresh_ms / 1000
    )
    reader = RecordReader(consumer, connection, subscription)
    status = 0
    try:
        with interrupted_by_sigterm():
            connection.first_answer(consumer, subscription.topic)
            reader.run(
                write,
                None if max_messages < 0 else max_messages,
                None if timeout_ms < 0 else timeout_ms,
                skip_errors=skip_message_on_error,
            )
    except KeyboardInterrupt as interrupt:
        status = exit_status(interrupt)
    finally:
        consumer.close()
    click.echo(f"Processed a total of {reader.count} messages", err=True)
    if enable_systest_events:
        click.echo("shutdown_complete")
    click.get_current_context().exit(status)


def _formatter(
    name: str | None, key_deserializer: str | None, value_deserializer: str | None, printing: GivenProperties
) -> Formatter:
    deserializers = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
    values = {key: it for key, it in deserializers.items() if it} | printing.values
    printing = replace(printing, values=values)
    if not wants_json():
        return find_formatter(name or DEFAULT, printing)
    if name is not None:
        raise click.UsageError("give only one of --json, --formatter")
    return json_formatter(printing)
