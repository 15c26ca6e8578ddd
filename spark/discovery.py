"""Asks the cluster for what a read is planned from: topics, partitions, the ends of logs, and positions."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    list_offsets,
)
from pykraft.kafka_client.metadata import Topic, TopicPartition
from pykraft.spark.offsets import PlanError, check_exact, everywhere
from pykraft.spark.options import Assign, ReadOptions, Subscribe
from pykraft.spark.positions import LATEST, ByTimestamp, OffsetSpec, PerPartition

Positions = dict[TopicPartition, int]


class Logs(Protocol):
    """The logs to read, as planning sees them.

    Every method raises :class:`~pykraft.kafka_protocol.errors.KafkaError` if the cluster does not answer in
    time, and if a partition or topic is missing.
    """

    async def find_topics(self, *, skips_missing: bool = False) -> list[Topic]:
        """All that are read; ``skips_missing``: of those that are named, all that exist."""
        ...

    async def starts(self, partitions: Collection[TopicPartition]) -> Positions: ...

    async def ends(self, partitions: Collection[TopicPartition]) -> Positions:
        """Exclusive; as far as records are committed, if only those are read."""
        ...

    async def positions(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition], which: str
    ) -> Positions:
        """Offsets, ``EARLIEST`` or ``LATEST``; ``which``: "starting" or "ending", for messages.
        :class:`PlanError` if ``spec`` does not name the partitions, or no record is as new as it says."""
        ...


class ClusterLogs:
    """:class:`Logs` of a cluster."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._level = options.fetch.isolation_level

    async def find_topics(self, *, skips_missing: bool = False) -> list[Topic]:
        match self._options.source:
            case Assign(partitions):
                return await self._named(sorted(partitions), skips_missing)
            case Subscribe(names):
                return await self._named(sorted(names), skips_missing)
            case pattern:
                matches = re.compile(pattern.pattern).fullmatch
                everything = await self._cluster.topics(None, self._cluster.deadline())
                return [topic for topic in everything if not topic.is_internal and matches(topic.name)]

    async def _named(self, names: list[str], skips_missing: bool) -> list[Topic]:
        cluster, deadline_ms = self._cluster, self._cluster.deadline()
        if not skips_missing:
            return await cluster.topics(names, deadline_ms)
        await cluster.retrying("metadata", lambda: cluster.refresh(names, deadline_ms), deadline_ms)
        found = map(cluster.metadata.topic, names)
        return [topic for topic in found if topic is not None]

    async def starts(self, partitions: Collection[TopicPartition]) -> Positions:
        return await self._offsets(partitions, EARLIEST_TIMESTAMP, READ_UNCOMMITTED)

    async def ends(self, partitions: Collection[TopicPartition]) -> Positions:
        return await self._offsets(partitions, LATEST_TIMESTAMP, self._level)

    async def _offsets(self, partitions: Collection[TopicPartition], timestamp: int, level: int) -> Positions:
        timestamps, deadline_ms = dict.fromkeys(partitions, timestamp), self._cluster.deadline()
        listed = await list_offsets(self._cluster, timestamps, deadline_ms, level)
        return {partition: listed[partition].offset or 0 for partition in partitions}

    async def positions(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition], which: str
    ) -> Positions:
        if isinstance(spec, PerPartition):
            check_exact(spec.positions, partitions, f"{which}Offsets")
        if not isinstance(spec, ByTimestamp):
            return everywhere(spec, partitions)
        if spec.everywhere is None:
            check_exact(spec.timestamps, partitions, f"{which}OffsetsByTimestamp")
            timestamps = dict(spec.timestamps)
        else:
            timestamps = dict.fromkeys(partitions, spec.everywhere)
        listed = await list_offsets(self._cluster, timestamps, self._cluster.deadline(), self._level)
        found = {}
        for partition, answer in listed.items():
            if answer.offset is None and not spec.latest_if_none:
                raise PlanError(
                    f"no record of {partition} is as new as the {which} timestamp "
                    f"{timestamps[partition]}; with 'startingOffsetsByTimestampStrategy' set to 'latest' the "
                    f"read starts at the end there"
                )
            found[partition] = LATEST if answer.offset is None else answer.offset
        return found


def partitions_of(
    topics: Collection[Topic], options: ReadOptions, *, skips_missing: bool = False
) -> list[TopicPartition]:
    """All that are read, in order. :class:`PlanError` if one is missing, unless ``skips_missing``."""
    existing = {TopicPartition(topic.name, index) for topic in topics for index in topic.partitions}
    if not isinstance(options.source, Assign):
        return sorted(existing)
    wanted = {
        TopicPartition(name, index)
        for name, indexes in options.source.partitions.items()
        for index in indexes
    }
    missing = sorted(wanted - existing)
    if missing and not skips_missing:
        raise PlanError(f"option 'assign': there is no partition {missing[0]}")
    return sorted(wanted & existing)
