"""``pykraft producer``, with the flags of kafka-console-producer. Sends through librdkafka."""

from __future__ import annotations

import sys
from typing import Final

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pykraft.node.cli.common import Properties, bootstrap_option, pairs
from pykraft.node.cli.librdkafka import Connection, OutageError, end_at_sigterm, usage_error

_STEP_S: Final = 0.5


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE",
              help="parse.key=true, key.separator=<text> (a tab by default), null.marker=<text>.")  # fmt: skip
@click.option(
    "--producer-property", multiple=True, metavar="KEY=VALUE", help="A librdkafka setting; repeatable."
)
@click.option(
    "--compression-codec", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none"
)
@click.option("--request-required-acks", default="-1", show_default=True, help="0, 1 or -1 (all).")
@click.option("--sync", is_flag=True, help="Wait for each record before the next.")
def command(
    bootstrap_server: str,
    topic: str,
    properties: tuple[str, ...],
    producer_property: tuple[str, ...],
    compression_codec: str,
    request_required_acks: str,
    sync: bool,
) -> None:
    """Write the lines of standard input to a topic, one record per line."""
    reading = Properties(properties, ("parse.key", "key.separator", "null.marker"))
    parse_key, separator = reading.flag("parse.key"), reading.separator("key.separator")
    null_marker = reading.text("null.marker")
    null_value = None if null_marker is None else null_marker.encode()
    settings = {
        "acks": request_required_acks,
        "compression.type": compression_codec,
    } | pairs(producer_property, "--producer-property")
    connection = Connection(bootstrap_server, settings)
    try:
        writer = _Writer(connection, topic)
    except KafkaException as error:
        raise usage_error(error) from None
    end_at_sigterm()
    problem = ""
    try:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            key, value = None, line.rstrip(b"\r\n")
            if parse_key:
                key, found, value = value.partition(separator)
                if not found:
                    raise _RefusedLineError(f"no key separator in line {number}")
            writer.write(number, key, None if value == null_value else value)
            if sync:
                writer.flush()
            if writer.has_failed:
                problem = f"stopped after line {number}"
                break
    except _RefusedLineError as error:
        problem = str(error)
    except KeyboardInterrupt:
        problem = "interrupted"
    outcome = writer.finish()
    if problem or outcome:
        raise click.ClickException("; ".join(filter(None, (problem, outcome))))


class _RefusedLineError(Exception):
    """A line that cannot become a record; the message says which, and why."""


class _Writer:
    """Sends records. An accepted line is delivered, or counted as not delivered."""

    def __init__(self, connection: Connection, topic: str) -> None:
        """Waits until a broker responds. :class:`KafkaException` for settings that librdkafka refuses."""
        self._connection = connection
        self._topic = topic
        self._producer = Producer(connection.settings)
        self._taken = 0
        self._delivered = 0
        self._reasons: dict[str, None] = {}
        self._gave_up = False
        connection.first_answer(self._producer, topic)

    @property
    def has_failed(self) -> bool:
        return bool(self._reasons)

    def write(self, number: int, key: bytes | None, value: bytes | None) -> None:
        """Queue a record. :class:`_RefusedLineError` if it cannot be sent."""
        while True:
            try:
                self._producer.produce(self._topic, key=key, value=value, on_delivery=self._handle_delivery)
                break
            except BufferError:
                self._producer.poll(_STEP_S)
                if not self._wait_for_brokers():
                    raise _RefusedLineError(f"line {number} was not sent") from None
            except KafkaException as error:
                reason = error.args[0].str()
                raise _RefusedLineError(f"line {number} cannot be sent: {reason}") from None
        self._taken += 1
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything is delivered or refused, or no broker responds any more."""
        while self._producer.flush(_STEP_S) and self._wait_for_brokers():
            pass

    def finish(self) -> str:
        """Flush; returns a message about records that were not delivered, if there are any."""
        self.flush()
        missing = self._taken - self._delivered
        if not missing:
            return ""
        return f"{missing} of {self._taken} records were not delivered: {', '.join(self._reasons)}"

    def _wait_for_brokers(self) -> bool:
        """Whether a broker responds within a limited time."""
        if self._gave_up:
            return False
        try:
            self._connection.check(self._producer, self._topic)
        except OutageError as error:
            self._reasons[error.message] = None
            self._gave_up = True
        return not self._gave_up

    def _handle_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._reasons[error.str()] = None
