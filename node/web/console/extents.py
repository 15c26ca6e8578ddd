"""Where logs of partitions start and end, and how large they are, as far as their brokers can be asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.admin.log_dirs import describe_log_dirs
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    ListedOffset,
    list_each_offset,
)
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError


class Extent(NamedTuple):
    """``end`` exclusive."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        """As many records, or fewer: compaction and transactions leave gaps."""
        return self.end - self.start


Extents = dict[TopicPartition, Extent]


async def extents_of(
    admin: Admin,
    partitions: Collection[TopicPartition],
    timeout_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> Extents:
    """Without those of partitions whose leader does not answer in time, or that have none.

    The end is that for readers of this ``isolation_level``.
    """
    starts = await offsets_of(admin, partitions, EARLIEST_TIMESTAMP, timeout_ms)
    ends = await offsets_of(admin, starts, LATEST_TIMESTAMP, timeout_ms, isolation_level)
    return {place: Extent(starts[place], end) for place, end in ends.items()}


async def offsets_of(
    admin: Admin,
    partitions: Collection[TopicPartition],
    time_ms: int,
    timeout_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offsets for a time, as in ListOffsets; without those that cannot be had."""
    askable = dict.fromkeys(await _led(admin, partitions, timeout_ms), time_ms)
    if not askable:
        return {}
    by = admin.cluster.deadline(timeout_ms)
    listed = await list_each_offset(admin.cluster, askable, by, isolation_level)
    return {
        place: one.offset
        for place, one in listed.items()
        if isinstance(one, ListedOffset) and one.offset is not None
    }


async def _led(admin: Admin, partitions: Collection[TopicPartition], timeout_ms: int) -> list[TopicPartition]:
    """Those that exist and have a leader: the others would be asked for again until the time is over."""
    cluster = admin.cluster
    names = sorted({place.topic for place in partitions})
    if not names:
        return []
    by = cluster.deadline(timeout_ms)
    await cluster.retrying("Metadata", lambda: cluster.refresh(names, by), by)
    known = ((place, cluster.metadata.partition(*place)) for place in sorted(partitions))
    return [place for place, one in known if one is not None and one.leader_id in cluster.metadata.brokers]


async def sizes_of(
    admin: Admin, partitions: Collection[TopicPartition], brokers: Iterable[int], timeout_ms: int
) -> dict[tuple[int, TopicPartition], int]:
    """Bytes of each replica, by broker; without those of brokers that do not answer."""
    cluster, sizes = admin.cluster, {}
    by = cluster.deadline(timeout_ms)
    for broker in sorted(set(brokers) & cluster.metadata.brokers.keys()):
        try:
            described = await describe_log_dirs(cluster, [broker], by, partitions)
        except KafkaError:
            continue
        for directory in described[broker]:
            for replica in directory.replicas:
                if not replica.is_future:
                    sizes[broker, replica.partition] = replica.size_bytes
    return sizes
