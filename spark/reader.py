"""Reads one range of one partition on an executor: fetch, decode, yield, until the end offset is reached.

The end is the offset fixed at planning, whatever is produced meanwhile. Data loss (the range was deleted or
truncated, the topic was deleted) is an error, or, with ``failOnDataLoss`` off, a warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import ClientTimeoutError, DataLossError, OffsetOutOfRangeError
from pykraft.kafka_client.fetcher import FetchedBatches, PartitionFetcher
from pykraft.kafka_client.visible import visible_batches
from pykraft.spark.planner import ReadTask
from pykraft.spark.worker_memory import spare_imports

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The records of the task's range, in offset order."""
    from pykraft.spark.decode import DecodeConfig, decode_batches  # numpy and pyarrow: executors only

    spare_imports()
    wanted = task.offsets
    options = task.options
    config = DecodeConfig(
        wanted.topic, wanted.partition, wanted.start, wanted.end, task.columns, options.check_crcs
    )
    cluster = Cluster(BlockingNetwork(), options.client)
    fetcher = PartitionFetcher(
        cluster, wanted.topic, task.topic_id, wanted.partition, wanted.start, options.fetch
    )
    try:
        for fetched in _answers(cluster, fetcher, task):
            shown = visible_batches(fetched.data, fetched.headers, fetched.aborted)
            yield from decode_batches(fetched.data, shown, config)
    finally:
        fetcher.close()
        cluster.close()


def _answers(cluster: Cluster, fetcher: PartitionFetcher, task: ReadTask) -> Iterator[FetchedBatches]:
    """Responses with data, until they cover the range. Each must advance within the poll timeout."""
    wanted = task.offsets
    end = wanted.end
    deadline_ms = cluster.deadline(task.options.poll_timeout_ms)
    log_end: int | None = None
    while fetcher.position < end:
        try:
            fetched = run(fetcher.fetch(deadline_ms, read_ahead_until=end))
        except DataLossError as error:
            if task.options.fail_on_data_loss:
                raise
            behind = _behind_loss(fetcher.position, error, end)
            log.warning(
                "some records may be missed: offsets %d up to %d of %s-%d are skipped: %s",
                fetcher.position,
                behind,
                wanted.topic,
                wanted.partition,
                error.message,
            )
            fetcher.position = behind
            continue
        except ClientTimeoutError as error:
            if log_end is None:
                raise
            raise _no_records(task, fetcher.position, log_end) from error  # only the last response was late
        if fetched.headers:
            deadline_ms = cluster.deadline(task.options.poll_timeout_ms)
            log_end = None
            yield fetched
            continue
        log_end = fetched.high_watermark
        if cluster.network.now_ms() >= deadline_ms:
            raise _no_records(task, fetcher.position, log_end)


def _no_records(task: ReadTask, position: int, log_end: int) -> ClientTimeoutError:
    return ClientTimeoutError(
        f"{task.offsets.topic}-{task.offsets.partition}: no records at offset {position} for"
        f" {task.options.poll_timeout_ms} ms, though the read ends at {task.offsets.end}; the log now ends at"
        f" {log_end}"
    )


def _behind_loss(position: int, error: DataLossError, end: int) -> int:
    """The offset to continue at: the first one still there, or the end if nothing of the range is left."""
    if isinstance(error, OffsetOutOfRangeError) and position < error.log_start_offset:
        return min(error.log_start_offset, end)
    return end
