"""Turns the options of a batch read into the list of ranges to read, by asking the cluster.

Runs in a process of the driver, with the blocking client. The order matters: partitions first, then the log
ends, so that the end offsets are exact and a record produced later is not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykraft.kafka_protocol.ids import Uuid
from pykraft.spark.discovery import Logs, partitions_of
from pykraft.spark.offsets import OffsetRange, resolve_ranges, split_ranges
from pykraft.spark.options import BatchReadOptions, ReadOptions


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The work of one Spark task; it is pickled for the executor. ``topic_id`` as of planning."""

    offsets: OffsetRange
    topic_id: Uuid
    columns: tuple[str, ...]
    options: ReadOptions


async def plan_batch(logs: Logs, options: BatchReadOptions, columns: tuple[str, ...]) -> list[ReadTask]:
    """The tasks of a batch read, in order of topic, partition and offset."""
    topics = await logs.find_topics()
    partitions = partitions_of(topics, options)
    log_start = await logs.starts(partitions)
    log_end = await logs.ends(partitions)
    ranges = resolve_ranges(
        await logs.positions(options.starting, partitions, "starting"),
        await logs.positions(options.ending, partitions, "ending"),
        log_start,
        log_end,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    ids = {topic.name: topic.topic_id for topic in topics}
    return [
        ReadTask(one, ids[one.topic], columns, options)
        for one in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    ]
