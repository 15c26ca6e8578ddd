"""Reads for ``consumer-perf-test``, as the only member of its group as a rule, and prints how fast."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import DataLossError
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.member import GroupConfig, GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.perf.metrics import Metrics
from pykraft.node.cli.perf.network import MeasuredNetwork
from pykraft.node.cli.perf.stats import ConsumerStats, RebalanceTime

GROUP: Final = "consumer-metrics"

_FETCHES: Final = "consumer-fetch-manager-metrics"
_POLL_MS: Final = 100
_COMMIT_INTERVAL_MS: Final = 5_000
"""The default of Kafka's auto.commit.interval.ms."""
_COMMIT_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Reading:
    """``topic`` or ``include`` says what is read."""

    topic: str | None
    include: re.Pattern[str] | None
    num_records: int
    timeout_ms: int
    reporting_interval_ms: int
    show_detailed_stats: bool
    format_time: Callable[[int], str]


class PerfReader:
    """Commits what it has read, as Kafka's consumer does. Create it on a running event loop."""

    def __init__(
        self,
        network: MeasuredNetwork,
        client: ClientConfig,
        group: GroupConfig,
        fetch: FetchConfig,
        reading: Reading,
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
        """Read until there is enough, or no more comes, and print the summary even if cut short."""
        reading, stats = self._reading, self._stats
        now_ms = last_ms = commit_ms = self._start_ms
        try:
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
            if stats.records < reading.num_records:
                click.echo(
                    "WARNING: Exiting before consuming the expected number of records: timeout"
                    f" ({reading.timeout_ms} ms) exceeded. You can use the --timeout option to increase the"
                    " timeout."
                )
        finally:
            now_ms = self._network.now_ms()
            if not reading.show_detailed_stats:
                start, end = self._text(self._start_ms), self._text(now_ms)
                click.echo(stats.total_line(start, end, now_ms, self._rebalances.total_ms))

    def metrics(self) -> Metrics:
        """Return the counts of what was read."""
        return {
            (_FETCHES, "records-consumed-total"): self._stats.records,
            (_FETCHES, "bytes-consumed-total"): self._stats.bytes,
        }

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
