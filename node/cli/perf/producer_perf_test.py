"""``pykraft producer-perf-test``, with the flags and the output lines of kafka-producer-perf-test."""

from __future__ import annotations

import asyncio
import os
import random
import re
import uuid
from collections.abc import Mapping
from typing import Final

import click
from click.core import ParameterSource

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.node.cli.perf.load import Payloads, chosen_from, monotonic, random_letters, split_payloads
from pykraft.node.cli.perf.metrics import metric_lines
from pykraft.node.cli.perf.network import MeasuredNetwork, open_topic
from pykraft.node.cli.perf.sender import GROUP, Load, Sender
from pykraft.node.cli.shared.client_properties import (
    BOOTSTRAP_SERVERS,
    client_config,
    producer_config,
    socket_buffers,
    transaction_config,
)
from pykraft.node.cli.shared.common import BOOTSTRAP_VARIABLE
from pykraft.node.cli.shared.kafka_command import KafkaCommand
from pykraft.node.cli.shared.property_options import GivenProperties, property_options
from pykraft.node.cli.shared.reach import check_reachable

_CLIENT_ID: Final = "perf-producer-client"
_DEPRECATED: Final = "Option {} has been deprecated and will be removed in a future version. Use {} instead."
_LIST_OPTIONS: Final = ("--command-property", "--producer-props")
_TRANSACTION_DURATION_MS: Final = 3000


@click.command(cls=KafkaCommand, list_options=_LIST_OPTIONS)
@click.option("--bootstrap-server", envvar=BOOTSTRAP_VARIABLE, show_envvar=True, metavar="HOST:PORT,…",
              help="One or more brokers to connect to first; or the property bootstrap.servers.")  # fmt: skip
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="How many records to send.")
@click.option("--record-size", type=click.IntRange(min=1), help="Send random letters, this many bytes each.")
@click.option("--payload-file", metavar="FILE", help="Send random payloads of this UTF-8 text file.")
@click.option("--payload-delimiter", default="\\n", show_default=True, metavar="REGEX",
              help="What is between the payloads in the file.")  # fmt: skip
@click.option("--payload-monotonic", is_flag=True, help="Send the numbers from 0 on, as text.")
@click.option("--throughput", required=True, type=float, help="At most this many records/s; -1: no limit.")
@property_options(
    "of_client", _LIST_OPTIONS, ("--command-config", "--producer.config"), "the producer", said=_DEPRECATED
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions, under this id.")
@click.option("--transaction-duration-ms", type=click.IntRange(min=1), metavar="MS",
              help=f"Send in transactions, and commit each after this time; {_TRANSACTION_DURATION_MS} by default.")  # fmt: skip
@click.option("--warmup-records", type=int, default=0, show_default=True,
              help="Leave out this many first records in a second summary.")  # fmt: skip
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True,
              metavar="MS", help="The time between two lines of progress.")  # fmt: skip
@click.option("--print-metrics", is_flag=True, help="Print what the client has sent and received.")
@click.pass_context
def command(
    context: click.Context,
    bootstrap_server: str | None,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    of_client: GivenProperties,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    warmup_records: int,
    reporting_interval: int,
    print_metrics: bool,
) -> None:
    """Measure how fast records are written, and after what time each is acknowledged.

    Exits with 1 if records were not acknowledged; these are in none of the figures.
    """
    if throughput == 0 or throughput != throughput:
        raise click.UsageError("--throughput must be above 0, or below 0 for no limit")
    if warmup_records >= num_records:
        raise click.UsageError("--warmup-records must be below --num-records")
    if (record_size is not None) + (payload_file is not None) + payload_monotonic != 1:
        raise click.UsageError("give exactly one of --record-size, --payload-file, --payload-monotonic")
    if record_size is not None:
        payloads = random_letters(record_size, random.Random(0))
    elif payload_file is not None:
        payloads = _from_file(payload_file, payload_delimiter)
    else:
        payloads = monotonic()
    given = of_client.values
    config = producer_config(given)
    # A property says more about this run than a variable of the environment.
    if context.get_parameter_source("bootstrap_server") is not ParameterSource.COMMANDLINE:
        bootstrap_server = given.get(BOOTSTRAP_SERVERS, bootstrap_server)
    if bootstrap_server is None:
        raise click.UsageError("give --bootstrap-server, or the property bootstrap.servers")
    transaction = _transaction(given, transactional_id, is_asked=transaction_duration_ms is not None)
    if transaction is not None and not config.enable_idempotence:
        raise click.UsageError("transactions need acks=all and enable.idempotence=true")
    load = Load(
        topic,
        payloads,
        num_records,
        max(warmup_records, 0),
        throughput,
        reporting_interval,
        transaction,
        transaction_duration_ms or _TRANSACTION_DURATION_MS,
    )
    client = client_config(given, bootstrap_server, _CLIENT_ID)
    check_reachable(bootstrap_server)
    asyncio.run(_run(client, config, load, socket_buffers(given), print_metrics))


def _from_file(path: str, delimiter: str) -> Payloads:
    click.echo(f"Reading payloads from: {os.path.abspath(path)}")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            payloads = split_payloads(file.read(), delimiter)
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8: {error}") from None
    except re.error as error:
        raise click.UsageError(f"--payload-delimiter {delimiter!r}: {error}") from None
    if not payloads:
        raise click.UsageError(f"{path} holds no payload")
    click.echo(f"Number of records read: {len(payloads)}")
    return chosen_from(payloads, random.Random(0))


def _transaction(
    given: Mapping[str, str], transactional_id: str | None, *, is_asked: bool
) -> TransactionConfig | None:
    """None for records outside of transactions. Without an id a random one serves."""
    named = {} if transactional_id is None else {"transactional.id": transactional_id}
    by_default = {"transactional.id": f"performance-producer-{uuid.uuid4()}"} if is_asked else {}
    return transaction_config({**by_default, **given, **named})


async def _run(
    client: ClientConfig, config: ProducerConfig, load: Load, buffers: Mapping[str, int], print_metrics: bool
) -> None:
    network = MeasuredNetwork(**buffers)
    partitions = await open_topic(network, client, load.topic)
    start_ms = network.now_ms()
    sender = Sender(network, client, config, load, partitions)
    try:
        await sender.run()
    finally:
        await sender.close()
    if print_metrics:
        elapsed_s = (network.now_ms() - start_ms) / 1000
        found = network.metrics.collect(GROUP, elapsed_s) | sender.metrics
        click.echo("\n".join(metric_lines(found, client.client_id)))
    sender.check_all_acknowledged()
