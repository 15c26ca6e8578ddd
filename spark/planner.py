"""Turns checked options into the list of ranges to read, by asking the cluster.

Runs in a process of the driver, with the blocking client. The order matters: partitions first, then the log
ends, so that the end offsets are exact and a record produced later is not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    list_offsets,
)
from pykraft.kafka_client.metadata import Topic, TopicPartition
from pykraft.kafka_protocol.ids import Uuid
from pykraft.spark.offsets import (
    OffsetRange,
    PlanError,
    check_exact,
    everywhere,
    resolve_ranges,
    split_ranges,
)
from pykraft.spark.options import Assign, BatchReadOptions, Subscribe
from pykraft.spark.positions import LATEST, ByTimestamp, OffsetSpec, PerPartition


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The work of one Spark task; it is pickled for the executor. ``topic_id`` as of planning."""

    offsets: OffsetRange
    topic_id: Uuid
    columns: tuple[str, ...]
    options: BatchReadOptions


async def plan_batch(cluster: Cluster, options: BatchReadOptions, columns: tuple[str, ...]) -> list[ReadTask]:
    """The tasks of a batch read, in order of topic, partition and offset."""
    deadline_ms = cluster.deadline()
    topics = await _topics(cluster, options, deadline_ms)
    partitions = _partitions(topics, options)
    level = options.fetch.isolation_level
    log_start = await _log_offsets(cluster, partitions, EARLIEST_TIMESTAMP, deadline_ms, level)
    log_end = await _log_offsets(cluster, partitions, LATEST_TIMESTAMP, deadline_ms, level)
    ranges = resolve_ranges(
        await _positions(cluster, options.starting, partitions, "starting", deadline_ms, level),
        await _positions(cluster, options.ending, partitions, "ending", deadline_ms, level),
        log_start,
        log_end,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    ids = {topic.name: topic.topic_id for topic in topics}
    return [
        ReadTask(one, ids[one.topic], columns, options)
        for one in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    ]


async def _topics(cluster: Cluster, options: BatchReadOptions, deadline_ms: int) -> list[Topic]:
    match options.source:
        case Assign(partitions):
            return await cluster.topics(sorted(partitions), deadline_ms)
        case Subscribe(names):
            return await cluster.topics(sorted(names), deadline_ms)
        case pattern:
            matches = re.compile(pattern.pattern).fullmatch
            everything = await cluster.topics(None, deadline_ms)
            return [topic for topic in everything if not topic.is_internal and matches(topic.name)]


def _partitions(topics: list[Topic], options: BatchReadOptions) -> list[TopicPartition]:
    existing = {TopicPartition(topic.name, index) for topic in topics for index in topic.partitions}
    if not isinstance(options.source, Assign):
        return sorted(existing)
    wanted = {
        TopicPartition(name, index)
        for name, indexes in options.source.partitions.items()
        for index in indexes
    }
    missing = sorted(wanted - existing)
    if missing:
        raise PlanError(f"option 'assign': there is no partition {missing[0]}")
    return sorted(wanted)


async def _log_offsets(
    cluster: Cluster, partitions: list[TopicPartition], timestamp: int, deadline_ms: int, level: int
) -> dict[TopicPartition, int]:
    listed = await list_offsets(cluster, dict.fromkeys(partitions, timestamp), deadline_ms, level)
    return {partition: listed[partition].offset or 0 for partition in partitions}


async def _positions(
    cluster: Cluster,
    spec: OffsetSpec,
    partitions: list[TopicPartition],
    which: str,
    deadline_ms: int,
    level: int,
) -> dict[TopicPartition, int]:
    if isinstance(spec, PerPartition):
        check_exact(spec.positions, partitions, f"{which}Offsets")
    if not isinstance(spec, ByTimestamp):
        return everywhere(spec, partitions)
    if spec.everywhere is None:
        check_exact(spec.timestamps, partitions, f"{which}OffsetsByTimestamp")
        timestamps = dict(spec.timestamps)
    else:
        timestamps = dict.fromkeys(partitions, spec.everywhere)
    listed = await list_offsets(cluster, timestamps, deadline_ms, level)
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
