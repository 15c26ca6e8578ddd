"""``pykraft consumer-perf-test``, with the flags and the output lines of kafka-consumer-perf-test."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import click

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.member import GroupConfig
from pykraft.kafka_client.network import Network
from pykraft.node.cli.perf.java_dates import date_format as make_date_format
from pykraft.node.cli.perf.metrics import metric_lines
from pykraft.node.cli.perf.network import MeasuredNetwork, open_topic
from pykraft.node.cli.perf.reader import GROUP, PerfReader, Reading
from pykraft.node.cli.perf.stats import CONSUMER_COLUMNS
from pykraft.node.cli.shared.client_properties import (
    client_config,
    consumer_configs,
    socket_buffers,
)
from pykraft.node.cli.shared.common import bootstrap_option, version_option
from pykraft.node.cli.shared.kafka_command import KafkaCommand, regex
from pykraft.node.cli.shared.property_options import GivenProperties, property_options, renamed
from pykraft.node.cli.shared.reach import check_reachable

_CLIENT_ID: Final = "perf-consumer-client"
_DEPRECATED: Final = "Warning: {} is deprecated. Use {} instead."
_TIMEOUT_MS: Final = 10_000


@click.command(cls=KafkaCommand)
@bootstrap_option
@click.option("--topic", help="The topic to read.")
@click.option(
    "--include", type=regex, metavar="REGEX", help="Read the topics that match when the command starts."
)
@click.option("--num-records", type=click.IntRange(min=1), help="Stop when this many records were read.")
@click.option("--messages", type=click.IntRange(min=1), help="Deprecated: --num-records.")
@click.option("--group", help="The consumer group; one with a random number by default.")
@click.option("--fetch-size", type=click.IntRange(1, (1 << 31) - 1), default=1 << 20, show_default=True,
              metavar="BYTES", help="The most to fetch of one partition in a request.")  # fmt: skip
@click.option("--from-latest", is_flag=True,
              help="Without a committed offset start at the end, not at the beginning.")  # fmt: skip
@click.option("--timeout", type=click.IntRange(min=0), is_flag=False, flag_value=_TIMEOUT_MS, default=_TIMEOUT_MS,
              show_default=True, metavar="MS", help="Stop after this time without a record.")  # fmt: skip
@property_options(
    "of_client",
    ("--command-property",),
    ("--command-config", "--consumer.config"),
    "the consumer",
    said=_DEPRECATED,
)
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each reporting interval.")
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True,
              metavar="MS", help="The time between two lines of progress.")  # fmt: skip
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True,
              help="How times are printed, as a pattern of Java's SimpleDateFormat.")  # fmt: skip
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@click.option("--socket-buffer-size", type=int, default=-1, metavar="BYTES",
              help="The system's buffer of a connection; -1 (the default): as the system chooses.")  # fmt: skip
@click.option("--print-metrics", is_flag=True, help="Print what the client has sent and received.")
@version_option()
def command(
    bootstrap_server: str,
    topic: str | None,
    include: re.Pattern[str] | None,
    num_records: int | None,
    messages: int | None,
    group: str | None,
    fetch_size: int,
    from_latest: bool,
    timeout: int,
    of_client: GivenProperties,
    show_detailed_stats: bool,
    reporting_interval: int,
    date_format: str,
    hide_header: bool,
    socket_buffer_size: int,
    print_metrics: bool,
) -> None:
    """Measure how fast records are read by a member of a consumer group.

    It ends with the answer that reaches --num-records, and counts everything that it was sent.
    """
    if (topic is None) == (include is None):
        raise click.UsageError("give exactly one of --topic, --include")
    wanted = renamed({"--num-records": num_records, "--messages": messages}, _DEPRECATED)
    if wanted is None:
        raise click.UsageError("give exactly one of --num-records, --messages")
    given = of_client.values
    group_config, fetch = consumer_configs(
        given,
        GroupConfig(
            group_id=group or f"perf-consumer-{random.randrange(100_000)}",
            topics=(),
            auto_offset_reset="latest" if from_latest else "earliest",
        ),
        # As Kafka's tool: it measures the transport.
        FetchConfig(max_partition_fetch_bytes=fetch_size, check_crcs=False),
    )
    reading = Reading(
        topic,
        include,
        wanted,
        timeout,
        reporting_interval,
        show_detailed_stats,
        _date_format(date_format),
    )
    check_reachable(bootstrap_server)
    if not hide_header:
        first = "time, threadId" if show_detailed_stats else "start.time, end.time"
        click.echo(f"{first}, {CONSUMER_COLUMNS}")
    client = client_config(given, bootstrap_server, _CLIENT_ID)
    buffers = socket_buffers(given)
    if socket_buffer_size > 0:
        buffers["receive_buffer_bytes"] = socket_buffer_size
    asyncio.run(_run(client, group_config, fetch, reading, buffers, print_metrics))


def _date_format(pattern: str) -> Callable[[int], str]:
    try:
        return make_date_format(pattern)
    except ValueError as error:
        raise click.UsageError(f"--date-format {pattern!r}: {error}") from None


async def _run(
    client: ClientConfig,
    group: GroupConfig,
    fetch: FetchConfig,
    reading: Reading,
    buffers: Mapping[str, int],
    print_metrics: bool,
) -> None:
    network = MeasuredNetwork(**buffers)
    topics = await _topics(network, client, reading)
    start_ms = network.now_ms()
    reader = PerfReader(network, client, replace(group, topics=topics), fetch, reading)
    try:
        await reader.run()
    finally:
        await reader.close()
    if print_metrics:
        elapsed_s = (network.now_ms() - start_ms) / 1000
        found = network.metrics.collect(GROUP, elapsed_s) | reader.metrics()
        click.echo("\n".join(metric_lines(found, client.client_id)))


async def _topics(network: Network, client: ClientConfig, reading: Reading) -> tuple[str, ...]:
    if reading.include is None:
        assert reading.topic is not None
        await open_topic(network, client, reading.topic)
        return (reading.topic,)
    admin = Admin(network, client)
    try:
        listed = await admin.list_topics()
    finally:
        admin.close()
    found = tuple(topic.name for topic in listed if reading.include.fullmatch(topic.name))
    if not found:
        raise click.ClickException(f"no topic matches {reading.include.pattern}")
    return found
