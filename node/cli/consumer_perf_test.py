"""``pykraft consumer-perf-test``, with the flags and the output lines of kafka-consumer-perf-test."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click

from pykraft.kafka_client.admin_topics import list_topics
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import DataLossError
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group_member import GroupConfig, GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.client_properties import (
    BOOTSTRAP_SERVERS,
    client_config,
    consumer_configs,
    read_properties,
    refused_option,
)
from pykraft.node.cli.common import bootstrap_option
from pykraft.node.cli.java_dates import date_format as make_date_format
from pykraft.node.cli.perf_stats import CONSUMER_COLUMNS, ConsumerStats, RebalanceTime
from pykraft.node.cli.reach import check_reachable

_CLIENT_ID: Final = "perf-consumer-client"
_POLL_MS: Final = 100
_COMMIT_INTERVAL_MS: Final = 5_000
"""The default of Kafka's auto.commit.interval.ms."""
_COMMIT_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class _Reading:
    topic: str | None
    include: re.Pattern[str] | None
    num_records: int
    timeout_ms: int
    reporting_interval_ms: int
    show_detailed_stats: bool
    format_time: Callable[[int], str]


@click.command()
@bootstrap_option
@click.option("--topic", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read the topics that match when the command starts.")
@click.option("--num-records", type=click.IntRange(min=1), help="Stop when this many records were read.")
@click.option("--messages", type=click.IntRange(min=1), help="Deprecated: --num-records.")
@click.option("--group", help="The consumer group; one with a random number by default.")
@click.option("--fetch-size", type=click.IntRange(1, (1 << 31) - 1), default=1 << 20, show_default=True,
              metavar="BYTES", help="The most to fetch of one partition in a request.")  # fmt: skip
@click.option("--from-latest", is_flag=True,
              help="Without a committed offset start at the end, not at the beginning.")  # fmt: skip
@click.option("--timeout", type=click.IntRange(min=0), default=10_000, show_default=True, metavar="MS",
              help="Stop after this time without a record.")  # fmt: skip
@click.option("--command-property", multiple=True, metavar="KEY=VALUE",
              help="A property of the consumer; it takes precedence over the file; repeatable.")  # fmt: skip
@click.option("--command-config", metavar="FILE", help="A file with properties of the consumer.")
@click.option("--consumer.config", "consumer_file", metavar="FILE", help="Deprecated: --command-config.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each reporting interval.")
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True,
              metavar="MS", help="The time between two lines of progress.")  # fmt: skip
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True,
              help="How times are printed, as a pattern of Java's SimpleDateFormat.")  # fmt: skip
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@refused_option("--print-metrics", "pykraft's consumer keeps no metrics", is_flag=True)
@refused_option("--socket-buffer-size", "the system chooses the size")
def command(
    bootstrap_server: str,
    topic: str | None,
    include: str | None,
    num_records: int | None,
    messages: int | None,
    group: str | None,
    fetch_size: int,
    from_latest: bool,
    timeout: int,
    command_property: tuple[str, ...],
    command_config: str | None,
    consumer_file: str | None,
    show_detailed_stats: bool,
    reporting_interval: int,
    date_format: str,
    hide_header: bool,
) -> None:
    """Measure how fast records are read by a member of a consumer group.

    It ends with the answer that reaches --num-records, and counts everything that it was sent.
    """
    if (topic is None) == (include is None):
        raise click.UsageError("give exactly one of --topic, --include")
    wanted = num_records if messages is None else messages
    if wanted is None or (num_records is not None and messages is not None):
        raise click.UsageError("give exactly one of --num-records, --messages")
    if command_config is not None and consumer_file is not None:
        raise click.UsageError("--command-config and --consumer.config cannot be used together")
    given = read_properties(command_property, "--command-property", command_config or consumer_file)
    given.pop(BOOTSTRAP_SERVERS, None)  # the option is required, and takes precedence
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
    reading = _Reading(
        topic,
        None if include is None else _regex(include),
        wanted,
        timeout,
        reporting_interval,
        show_detailed_stats,
        _date_format(date_format),
    )
    if messages is not None:
        click.echo("Warning: --messages is deprecated. Use --num-records instead.")
    if consumer_file is not None:
        click.echo("Warning: --consumer.config is deprecated. Use --command-config instead.")
    check_reachable(bootstrap_server)
    if not hide_header:
        first = "time, threadId" if show_detailed_stats else "start.time, end.time"
        click.echo(f"{first}, {CONSUMER_COLUMNS}")
    client = client_config(given, bootstrap_server, _CLIENT_ID)
    asyncio.run(_run(client, group_config, fetch, reading))


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"--include {text!r} is not a regular expression: {error}") from None


def _date_format(pattern: str) -> Callable[[int], str]:
    try:
        return make_date_format(pattern)
    except ValueError as error:
        raise click.UsageError(f"--date-format {pattern!r}: {error}") from None


async def _run(client: ClientConfig, group: GroupConfig, fetch: FetchConfig, reading: _Reading) -> None:
    network = AsyncioNetwork()
    cluster = Cluster(network, client)
    try:
        topics = await _topics(cluster, reading)
    finally:
        cluster.close()
    reader = _Reader(network, client, replace(group, topics=tuple(topics)), fetch, reading)
    try:
        await reader.run()
    finally:
        await reader.close()


async def _topics(cluster: Cluster, reading: _Reading) -> list[str]:
    deadline_ms = cluster.deadline()
    if reading.include is None:
        assert reading.topic is not None
        return [topic.name for topic in await cluster.topics([reading.topic], deadline_ms)]
    listed = await list_topics(cluster, deadline_ms)
    found = [topic.name for topic in listed if reading.include.fullmatch(topic.name)]
    if not found:
        raise click.ClickException(f"no topic matches {reading.include.pattern}")
    return found


class _Reader:
    """The only member of its group, as a rule. It commits what it has read, as Kafka's consumer does."""

    def __init__(
        self,
        network: AsyncioNetwork,
        client: ClientConfig,
        group: GroupConfig,
        fetch: FetchConfig,
        reading: _Reading,
    ) -> None:
        self._network = network
        self._reading = reading
        self._start_ms = network.now_ms()
        self._start_wall_ms = time.time_ns() // 1_000_000
        self._rebalances = RebalanceTime(self._start_ms)
        self._stats = ConsumerStats(self._start_ms)
        self._uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        # A random number that only names the member.
        self._member = GroupMember(network, client, group, self, random.Random(), fetch)

    async def run(self) -> None:
        """Read until there is enough, or nothing comes any more, and print the summary."""
        reading, stats = self._reading, self._stats
        now_ms = last_ms = commit_ms = self._start_ms
        while stats.records < reading.num_records and now_ms - last_ms <= reading.timeout_ms:
            found = await self._poll()
            now_ms = self._network.now_ms()
            if not found:
                continue
            last_ms = now_ms
            if reading.show_detailed_stats and stats.is_due(now_ms, reading.reporting_interval_ms):
                click.echo(stats.window_line(self._text(now_ms), now_ms, self._rebalances.total_ms))
            if now_ms - commit_ms >= _COMMIT_INTERVAL_MS:
                await self._commit(list(self._uncommitted))
                commit_ms = now_ms
        now_ms = self._network.now_ms()
        if stats.records < reading.num_records:
            click.echo(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({reading.timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        if not reading.show_detailed_stats:
            start, end = self._text(self._start_ms), self._text(now_ms)
            click.echo(stats.total_line(start, end, now_ms, self._rebalances.total_ms))

    async def close(self) -> None:
        """Commit, and leave the group."""
        await self._member.close()

    async def _poll(self) -> bool:
        """Whether there were records."""
        try:
            polled = await self._member.poll(_POLL_MS)
        except DataLossError as error:
            click.echo(f"WARNING: {error}", err=True)  # the member goes on where the reset policy says
            return False
        for partition, part in polled.items():
            size_bytes = sum(len(it.key or b"") + len(it.value or b"") for it in part.records)
            self._stats.record(len(part.records), size_bytes)
            self._uncommitted[partition] = OffsetAndMetadata(part.next_offset, part.leader_epoch)
        return bool(polled)

    async def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        offsets = {it: self._uncommitted.pop(it) for it in partitions if it in self._uncommitted}
        if not offsets:
            return
        try:
            await self._member.commit(offsets, _COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            click.echo(f"WARNING: offsets were not committed: {error}", err=True)

    def _text(self, at_ms: int) -> str:
        return self._reading.format_time(self._start_wall_ms + at_ms - self._start_ms)

    # The member's partitions.

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._rebalances.handle_assigned(partitions, self._network.now_ms())

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._commit(partitions)
        self._rebalances.handle_revoked(partitions, self._network.now_ms())

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._uncommitted.pop(partition, None)
        self._rebalances.handle_revoked(partitions, self._network.now_ms())

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None:
        """Nothing depends on it."""
