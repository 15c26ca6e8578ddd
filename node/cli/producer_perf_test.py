"""``pykraft producer-perf-test``, with the flags and the output lines of kafka-producer-perf-test."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
from click.core import ParameterSource

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.producer import Producer
from pykraft.kafka_client.producer_batch import ProducerConfig, RecordMetadata, record_size_bound
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import RecordInput
from pykraft.node.cli.client_properties import (
    BOOTSTRAP_SERVERS,
    ListOptionsCommand,
    client_config,
    producer_config,
    read_properties,
    refused_option,
)
from pykraft.node.cli.common import BOOTSTRAP_VARIABLE
from pykraft.node.cli.perf_load import (
    Payloads,
    StickyPartitions,
    chosen_from,
    monotonic,
    pause_ms,
    random_letters,
    split_payloads,
)
from pykraft.node.cli.perf_stats import ProducerStats
from pykraft.node.cli.reach import check_reachable

_CLIENT_ID: Final = "perf-producer-client"
_DEPRECATED: Final = "Option {} has been deprecated and will be removed in a future version. Use {} instead."


@dataclass(frozen=True, slots=True)
class _Load:
    topic: str
    payloads: Payloads
    num_records: int
    warmup_records: int
    records_per_s: float
    reporting_interval_ms: int


@click.command(cls=ListOptionsCommand)
@click.option("--bootstrap-server", envvar=BOOTSTRAP_VARIABLE, show_envvar=True, metavar="HOST:PORT,…",
              help="One or more brokers to connect to first; or the property bootstrap.servers.")  # fmt: skip
@click.option("--topic", required=True, help="The topic to write to; it must exist.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="How many records to send.")
@click.option("--record-size", type=click.IntRange(min=1), help="Send random letters, this many bytes each.")
@click.option("--payload-file", metavar="FILE", help="Send random payloads of this UTF-8 text file.")
@click.option("--payload-delimiter", default="\\n", show_default=True, metavar="REGEX",
              help="What is between the payloads in the file.")  # fmt: skip
@click.option("--payload-monotonic", is_flag=True, help="Send the numbers from 0 on, as text.")
@click.option("--throughput", required=True, type=float, help="At most this many records/s; -1: no limit.")
@click.option("--command-property", multiple=True, metavar="KEY=VALUE …",
              help="Properties of the producer; they take precedence over the file.")  # fmt: skip
@click.option("--command-config", metavar="FILE", help="A file with properties of the producer.")
@click.option("--producer-props", multiple=True, metavar="KEY=VALUE …",
              help="Deprecated: --command-property.")  # fmt: skip
@click.option("--producer.config", "producer_file", metavar="FILE", help="Deprecated: --command-config.")
@click.option("--warmup-records", type=int, default=0, show_default=True,
              help="Leave out this many first records in a second summary.")  # fmt: skip
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True,
              metavar="MS", help="The time between two lines of progress.")  # fmt: skip
@refused_option("--print-metrics", "pykraft's producer keeps no metrics", is_flag=True)
@refused_option("--transactional-id", "pykraft's producer has no transactions")
@refused_option("--transaction-duration-ms", "pykraft's producer has no transactions")
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
    command_property: tuple[str, ...],
    command_config: str | None,
    producer_props: tuple[str, ...],
    producer_file: str | None,
    warmup_records: int,
    reporting_interval: int,
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
    if command_property and producer_props:
        raise click.UsageError("--command-property and --producer-props cannot be used together")
    if command_config is not None and producer_file is not None:
        raise click.UsageError("--command-config and --producer.config cannot be used together")
    if record_size is not None:
        payloads = random_letters(record_size, random.Random(0))
    elif payload_file is not None:
        payloads = chosen_from(_read_payloads(payload_file, payload_delimiter), random.Random(0))
    else:
        payloads = monotonic()
    if producer_props:
        click.echo(_DEPRECATED.format("--producer-props", "--command-property"))
    if producer_file is not None:
        click.echo(_DEPRECATED.format("--producer.config", "--command-config"))
    option = "--producer-props" if producer_props else "--command-property"
    given = read_properties(command_property or producer_props, option, command_config or producer_file)
    config = producer_config(given)
    # A property says more about this run than a variable of the environment.
    if context.get_parameter_source("bootstrap_server") is not ParameterSource.COMMANDLINE:
        bootstrap_server = given.get(BOOTSTRAP_SERVERS, bootstrap_server)
    if bootstrap_server is None:
        raise click.UsageError("give --bootstrap-server, or the property bootstrap.servers")
    check_reachable(bootstrap_server)
    client = client_config(given, bootstrap_server, _CLIENT_ID)
    load = _Load(topic, payloads, num_records, max(warmup_records, 0), throughput, reporting_interval)
    asyncio.run(_run(client, config, load))


def _read_payloads(path: str, delimiter: str) -> list[bytes]:
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
    return payloads


async def _run(client: ClientConfig, config: ProducerConfig, load: _Load) -> None:
    network = AsyncioNetwork()
    cluster = Cluster(network, client)
    try:
        (topic,) = await cluster.topics([load.topic], cluster.deadline())
    finally:
        cluster.close()
    led = [index for index, it in sorted(topic.partitions.items()) if it.leader_id is not None]
    producer = Producer(network, client, config)
    try:
        sender = _Sender(producer, network, load, led or sorted(topic.partitions), config.batch_size_bytes)
        await sender.run()
    finally:
        await producer.close()


class _Sender:
    """Sends the records, and counts each when it is acknowledged."""

    def __init__(
        self,
        producer: Producer,
        network: AsyncioNetwork,
        load: _Load,
        partitions: Sequence[int],
        batch_size_bytes: int,
    ) -> None:
        self._producer = producer
        self._network = network
        self._load = load
        self._partitions = StickyPartitions(partitions, batch_size_bytes)
        self._all = ProducerStats(network.now_ms(), load.reporting_interval_ms)
        self._steady: ProducerStats | None = None
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._failed = 0
        self._reasons: dict[ErrorCode, str] = {}

    async def run(self) -> None:
        """Send everything, wait for the outcomes, and print the summary.

        :class:`click.ClickException` if records were not acknowledged.
        """
        load, start_ms = self._load, self._network.now_ms()
        turn_ms = start_ms
        if load.warmup_records:
            click.echo(
                f"Warmup first {load.warmup_records} records. Steady state results will print after the "
                "complete test summary."
            )
        for number in range(load.num_records):
            now_ms = self._network.now_ms()
            early_ms = pause_ms(number, now_ms - start_ms, load.records_per_s)
            if early_ms or now_ms != turn_ms:
                # A turn for the producer at least once in a millisecond.
                await asyncio.sleep(early_ms / 1000)
                turn_ms = self._network.now_ms()
            if load.warmup_records and number == load.warmup_records:
                self._steady = ProducerStats(
                    self._network.now_ms(), load.reporting_interval_ms, steady_state=True
                )
                self._all.is_silent = True
            await self._send(load.payloads(number))
        await self._producer.flush()
        while self._unanswered:
            await self._wait_for_an_answer()
        now_ms = self._network.now_ms()
        click.echo(self._all.total_line(now_ms))
        if self._steady is not None:
            click.echo(self._steady.total_line(now_ms))
        if self._failed:
            reasons = "; ".join(f"{code.name}: {message}" for code, message in self._reasons.items())
            raise click.ClickException(
                f"{self._failed} of {load.num_records} records were not acknowledged: {reasons}"
            )

    async def _send(self, payload: bytes) -> None:
        """Hand a record to the producer, once its buffer has room. The wait counts as latency."""
        start_ms = self._network.now_ms()
        partition = self._partitions.partition(record_size_bound(RecordInput(None, payload)))
        while True:
            try:
                future = self._producer.append(self._load.topic, partition, None, payload)
                break
            except NotWrittenError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED or not self._unanswered:
                    self._fail(error.code, error.message)
                    return
            await self._wait_for_an_answer()
        assert isinstance(future, asyncio.Future)
        self._unanswered += 1
        future.add_done_callback(partial(self._handle_done, start_ms, len(payload), self._steady))

    async def _wait_for_an_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    def _handle_done(
        self,
        start_ms: int,
        size_bytes: int,
        steady: ProducerStats | None,
        future: asyncio.Future[RecordMetadata],
    ) -> None:
        self._unanswered -= 1
        self._answered.set()
        error: Any = future.exception()
        if error is not None:
            self._fail(error.code, error.message)
            return
        now_ms = self._network.now_ms()
        for stats in (self._all, steady):
            if stats is not None:
                for line in stats.record(now_ms - start_ms, size_bytes, now_ms):
                    click.echo(line)

    def _fail(self, code: ErrorCode, message: str) -> None:
        self._failed += 1
        self._reasons.setdefault(code, message)
