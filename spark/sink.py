"""The sink as Spark sees it: one call for the rows of each task, on the executors.

*At least once*: an idempotent producer; a task that Spark runs again writes its rows again.

*Exactly once*: a task writes its rows in one transaction, together with a marker that says so. Its
transactional id is that of (query, partition), and the marker an offset of the group of the same name: the
next micro-batch. A task that is run again (a retry, a speculative copy, a restart of the query) first takes
over the transactional id, which aborts what an earlier attempt has left open and fences it, and only then
looks for the marker: it writes if there is none. So the rows of each (query, micro-batch, partition) are
written once, if the same rows come again when a micro-batch is run again (docs/spark.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pykraft.kafka_client.admin_groups import group_offsets
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.blocking_producer import BlockingProducer
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import OutcomeUnknownError
from pykraft.kafka_client.group_offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer_batch import RecordMetadata
from pykraft.kafka_client.producer_transaction import TransactionConfig
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.spark.write_options import WriteOptions
from pykraft.spark.written_rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark tells a task of its query; not documented, and held by a test."""

_COMMIT_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """``is_repeated``: an earlier attempt had written the rows."""

    rows: int
    is_repeated: bool = False


class PykraftWriter(DataSourceArrowWriter):
    """Of ``write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(iterator, self._options, lambda: (str(self._options.job_id), 0))


class PykraftStreamWriter(DataSourceStreamArrowWriter):
    """Of ``writeStream``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(iterator, self._options, lambda: (_property(_QUERY_ID), int(_property(_BATCH_ID))))


def _write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, find_epoch: Callable[[], tuple[str, int]]
) -> Written:
    """``find_epoch``: the query and its micro-batch."""
    if not options.is_exactly_once:
        return write_at_least_once(batches, options)
    query_id, epoch = find_epoch()
    return write_exactly_once(batches, options, _task_id(options, query_id), epoch)


def write_at_least_once(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> Written:
    """:class:`~pykraft.kafka_client.errors.ProduceError` if a row was not acknowledged."""
    with BlockingProducer(options.client, options.producer) as producer:
        return Written(_send(producer, batches, options))


def write_exactly_once(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, task_id: str, epoch: int
) -> Written:
    """Write the rows of ``epoch`` unless that was done; epochs of a ``task_id`` rise."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(0)
    marked = next(rows_of(first, options.topic)).topic
    transaction = TransactionConfig(task_id, options.transaction_timeout_ms)
    with BlockingProducer(options.client, options.producer, transaction) as producer:
        producer.init_transactions()
        if _next_epoch(options, task_id) > epoch:
            return Written(0, is_repeated=True)
        producer.begin_transaction()
        count = _send(producer, chain((first,), filled), options)
        marker = {TopicPartition(marked, 0): OffsetAndMetadata(epoch + 1)}
        producer.send_offsets_to_transaction(marker, task_id)
        _commit(producer.commit_transaction)
    return Written(count)


def _send(producer: BlockingProducer, batches: Iterable[pa.RecordBatch], options: WriteOptions) -> int:
    """The number of rows, all of which are acknowledged."""
    from pykraft.spark.encoded_rows import blocks_of, encode_rows, has_headers

    failures: list[BaseException] = []

    def done(sent: Future[RecordMetadata]) -> None:
        if (error := sent.exception()) is not None:
            failures.append(error)

    config = options.producer
    max_bytes = min(config.batch_size_bytes, config.max_request_size_bytes) - HEADER_BYTES
    count = 0
    for block in blocks_of(batches):
        now_ms = time.time_ns() // 1_000_000
        sent: Iterable[Future[RecordMetadata]]
        if has_headers(block):
            sent = (producer.send(*row, now_ms) for row in rows_of(block, options.topic))
        else:
            encoded = encode_rows(block, options.topic, producer.partitions_for, max_bytes, now_ms)
            sent = (producer.send_encoded(*one) for one in encoded)
        for future in sent:
            future.add_done_callback(done)
            if failures:
                break
        count += block.num_rows
        if failures:
            break
    producer.flush()
    if failures:
        raise failures[0]
    return count


def _commit(commit: Callable[[], None]) -> None:
    """Without an answer the next attempt of the task finds out what became of it."""
    for _ in range(_COMMIT_ATTEMPTS - 1):
        with suppress(OutcomeUnknownError):
            commit()
            return
    commit()


def _next_epoch(options: WriteOptions, task_id: str) -> int:
    cluster = Cluster(BlockingNetwork(), options.client)
    try:
        found = run(group_offsets(cluster, task_id, cluster.deadline(), require_stable=True))
    finally:
        cluster.close()
    return max((committed.offset for committed in found.values()), default=0)


def _task_id(options: WriteOptions, query_id: str) -> str:
    context = TaskContext.get()
    assert context is not None
    return f"{options.id_prefix}-{query_id}-{context.partitionId()}"


def _property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark does not tell this task its {name}, which an exactly-once write needs")
    return str(value)
