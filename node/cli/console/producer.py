"""``pykraft producer``, with the flags of kafka-console-producer. Sends through librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import click

from pykraft.node.cli.console.librdkafka import Connection
from pykraft.node.cli.console.librdkafka_properties import class_name, number
from pykraft.node.cli.console.line_reader import PROPERTIES, LineReader, RefusedLineError
from pykraft.node.cli.console.producer_options import MAX_BLOCK, producer_settings, setting_options
from pykraft.node.cli.console.record_writer import RecordWriter
from pykraft.node.cli.shared.common import bootstrap_option, version_option
from pykraft.node.cli.shared.interrupts import exit_status, interrupted_by_sigterm
from pykraft.node.cli.shared.kafka_command import KafkaCommand
from pykraft.node.cli.shared.property_options import property_options
from pykraft.node.cli.shared.tool_properties import GivenProperties, ToolProperties

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
    """Until the input ends; returns the status of the process. :class:`click.ClickException` if not everything was
    delivered.
    """
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
