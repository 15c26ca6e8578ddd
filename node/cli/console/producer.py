"""``pykraft producer``, with the flags of kafka-console-producer. Sends through librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import click

from pykraft.node.cli.console.librdkafka import Connection, given_settings, setting_option
from pykraft.node.cli.console.librdkafka_properties import class_name, number
from pykraft.node.cli.console.line_reader import PROPERTIES, LineReader, RefusedLineError
from pykraft.node.cli.console.record_writer import RecordWriter
from pykraft.node.cli.shared.common import bootstrap_option, version_option
from pykraft.node.cli.shared.interrupts import exit_status, interrupted_by_sigterm
from pykraft.node.cli.shared.kafka_command import KafkaCommand
from pykraft.node.cli.shared.property_options import GivenProperties, ToolProperties, property_options

MAX_BLOCK: Final = "max.block.ms"

_CLIENT_ID: Final = "console-producer"
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

FC = TypeVar("FC", bound=Callable[..., Any])

_ROWS: Final = (
    # Option, property, least value, unit, help.
    ("--request-timeout-ms", "request.timeout.ms", 1, "MS", "How long a broker may wait for its followers."),
    ("--message-send-max-retries", "retries", 0, "N", "How often a request is sent again."),
    ("--retry-backoff-ms", "retry.backoff.ms", 1, "MS", "The pause before a request is sent again."),
    ("--timeout", "linger.ms", 0, "MS", "How long a record waits for others to be sent with."),
    ("--batch-size", "batch.size", 1, "BYTES", "How much is sent at once to a partition."),
    ("--max-partition-memory-bytes", "batch.size", 1, "BYTES", "Deprecated: --batch-size."),
    (
        "--max-memory-bytes",
        "buffer.memory",
        1,
        "BYTES",
        "The size of the buffer of records that are not sent.",
    ),
    (
        "--max-block-ms",
        MAX_BLOCK,
        0,
        "MS",
        "How long a record waits for room in the buffer, and for its topic.",
    ),
    ("--metadata-expiry-ms", "metadata.max.age.ms", 1, "MS", "How often metadata is refreshed."),
    ("--socket-buffer-size", "send.buffer.bytes", -1, "BYTES", "The system's buffer of a connection."),
)

_IDEMPOTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "max.in.flight.requests.per.connection": tuple("12345"),
    "max.in.flight": tuple("12345"),
}
"""The values with which a producer may be idempotent."""
_RETRIES: Final = ("retries", "message.send.max.retries")


def setting_options(function: FC) -> FC:
    """All that :func:`given_settings` returns."""
    for name, key, least, unit, text in reversed(_ROWS):
        function = setting_option(name, key, type=click.IntRange(min=least), metavar=unit, help=text)(
            function
        )
    function = setting_option("--request-required-acks", "acks", help="0, 1 or -1 (all, the default).")(
        function
    )
    codec = click.Choice(_CODECS)
    return setting_option(
        "--compression-codec",
        "compression.type",
        type=codec,
        is_flag=False,
        flag_value="gzip",
        help="gzip if the codec is not named.",
    )(function)


def producer_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of the client: ``properties``, and the options above.

    As Kafka's producer it is idempotent unless something contradicts, and gives a key the same partition.
    """
    given = {**properties, **given_settings()}
    is_idempotent = all(
        given.get(name, values[0]).strip() in values for name, values in _IDEMPOTENT.items()
    ) and all(given.get(name, "1").strip() != "0" for name in _RETRIES)
    ours = {
        "client.id": _CLIENT_ID,
        "partitioner": "murmur2_random",
        "enable.idempotence": str(is_idempotent).lower(),
    }
    return ours | given


_LINE_READER: Final = "LineMessageReader"


@click.command(cls=KafkaCommand)
@bootstrap_option
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--sync", is_flag=True, help="Wait for each record before the next.")
@setting_options
@click.option(
    "--line-reader",
    metavar="CLASS",
    default=_LINE_READER,
    show_default=True,
    help="The only reader there is.",
)
@property_options("reading", ("--reader-property", "--property"), ("--reader-config",),
                  "the reader", PROPERTIES)  # fmt: skip
@property_options("of_client", ("--command-property", "--producer-property"), ("--command-config", "--producer.config"),
                  "Kafka's producer or of librdkafka")  # fmt: skip
@version_option()
def command(
    bootstrap_server: str,
    topic: str,
    sync: bool,
    line_reader: str,
    reading: GivenProperties,
    of_client: GivenProperties,
) -> None:
    """Write the lines of standard input to a topic, one record per line.

    A line is a value, and before it, if so said, headers and a key: h1:v1,h2:v2<tab>key<tab>value. A flag that is
    not given leaves librdkafka's default. Options take precedence over --command-property, and that over
    --command-config.
    """
    if class_name(line_reader) != _LINE_READER:
        raise click.UsageError(f"--line-reader {line_reader}: there is only {_LINE_READER}")
    reader = LineReader(ToolProperties(reading, PROPERTIES))
    settings = producer_settings(of_client.values)
    connection = Connection(bootstrap_server, settings)
    max_block = settings.get(MAX_BLOCK)
    writer = RecordWriter(connection, topic, None if max_block is None else number(MAX_BLOCK, max_block))
    with interrupted_by_sigterm():
        status = _write_lines(writer, reader, sync)
    click.get_current_context().exit(status)


def _write_lines(writer: RecordWriter, reader: LineReader, sync: bool) -> int:
    """Until the input ends; returns the exit status. ClickException if not everything was delivered."""
    problem, status = "", 0
    try:
        for number, line in enumerate(_lines(), start=1):
            writer.write(number, reader.record(number, line))
            if sync:
                writer.flush()
            if writer.has_failed:
                problem = f"stopped after line {number}"
                break
    except RefusedLineError as error:
        problem = str(error)
    except KeyboardInterrupt as interrupt:
        status = exit_status(interrupt)
    outcome = writer.finish()
    if problem or outcome:
        raise click.ClickException("; ".join(filter(None, (problem, outcome))))
    return status


def _lines() -> Iterator[bytes]:
    """The lines of standard input, each with a prompt if somebody types them."""
    is_typed = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if is_typed:
            click.echo(">", nl=False)
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line
