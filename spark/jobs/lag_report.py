"""How far consumer groups are behind: committed and end offsets, and rates by the records' own timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = "topic string, partition int, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True)
class Written:
    """A partition's records within the window. ``oldest_unread_ms`` None: the group has read all."""

    records: int
    oldest_unread_ms: int | None


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition of a group. ``records_per_s``: written within the window. ``behind_ms``: how long the
    oldest unread record of the window has waited; None if there is none."""

    group_id: str
    topic: str
    partition: int
    committed: int
    start_offset: int
    end_offset: int
    records_per_s: float
    behind_ms: int | None

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - max(self.committed, self.start_offset))

    @property
    def expired(self) -> int:
        """Records that were deleted before the group read them."""
        return max(0, self.start_offset - self.committed)


def lag_report(
    session: SparkSession,
    bootstrap_servers: str,
    groups: Sequence[str],
    window_ms: int,
    now_ms: int,
) -> list[Lag]:
    """By group, topic and partition; of all ``groups`` that have committed offsets if none is named."""
    with AdminClient(bootstrap_servers) as client:
        named = groups or sorted(listing.group_id for listing in client.list_groups())
        committed = {
            (group_id, partition): found.offset
            for group_id in named
            for partition, found in client.group_offsets(group_id).items()
        }
        partitions = sorted({partition for _, partition in committed})
        starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        ends = client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    written = _written(session, bootstrap_servers, committed, now_ms - window_ms) if committed else {}
    report = []
    for (group_id, partition), offset in sorted(committed.items()):
        recent = written.get((group_id, partition), Written(0, None))
        waits = None if recent.oldest_unread_ms is None else max(0, now_ms - recent.oldest_unread_ms)
        start, end = starts[partition].offset or 0, ends[partition].offset or 0
        rate = recent.records * 1000 / window_ms
        report.append(Lag(group_id, *partition, offset, start, end, rate, waits))
    return report


def _written(
    session: SparkSession,
    bootstrap_servers: str,
    committed: dict[tuple[str, TopicPartition], int],
    since_ms: int,
) -> dict[tuple[str, TopicPartition], Written]:
    from pyspark.sql import functions as f

    topics = ",".join(sorted({partition.topic for _, partition in committed}))
    settings = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topics,
        "startingTimestamp": str(since_ms),
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
    }
    records = session.read.format("pykraft").schema(_COLUMNS).options(**settings).load()
    rows = [(group, *partition, offset) for (group, partition), offset in committed.items()]
    groups = session.createDataFrame(rows, "group_id string, topic string, partition int, committed bigint")
    unread = f.when(f.col("offset") >= f.col("committed"), f.col("timestamp"))
    found = (
        records.join(f.broadcast(groups), ["topic", "partition"])
        .groupBy("group_id", "topic", "partition")
        .agg(f.count("*").alias("records"), f.unix_millis(f.min(unread)).alias("oldest_unread_ms"))
        .collect()
    )
    return {
        (row.group_id, TopicPartition(row.topic, row.partition)): Written(row.records, row.oldest_unread_ms)
        for row in found
    }
