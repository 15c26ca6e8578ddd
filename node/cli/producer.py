"""``pykraft producer``, with the flags of kafka-console-producer. Sends through librdkafka."""

from __future__ import annotations

import sys

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pykraft.node.cli.common import bootstrap_option, pairs


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
    """Write the lines of standard input to a topic, one record a line."""
    reading = pairs(properties, "--property")
    parse_key = reading.get("parse.key", "false").lower() == "true"
    separator = reading.get("key.separator", "\t").encode()
    null_marker = reading.get("null.marker")
    settings = {
        "bootstrap.servers": bootstrap_server,
        "acks": request_required_acks,
        "compression.type": compression_codec,
    } | pairs(producer_property, "--producer-property")
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error.str())
            click.echo(f"not delivered: {error.str()}", err=True)

    try:
        producer = Producer(settings)
    except KafkaException as error:
        raise click.UsageError(error.args[0].str()) from None
    for line in sys.stdin.buffer:
        key, value = None, line.rstrip(b"\r\n")
        if parse_key:
            key, found, value = value.partition(separator)
            if not found:
                raise click.ClickException(f"no key separator in line {line!r}")
        record_value = None if null_marker is not None and value == null_marker.encode() else value
        while True:
            try:
                producer.produce(topic, key=key, value=record_value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if sync:
            producer.flush()
    producer.flush()
    if failures:
        raise click.ClickException(f"{len(failures)} records were not delivered")
