"""Writing the rows of one task. Only for executors: it needs numpy and pyarrow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Final

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.producer.batch import RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.spark.writing.encoded_rows import blocks_of, encode_rows, has_headers
from pykraft.spark.writing.markers import Tally, check_rows, find_marker, marker_of
from pykraft.spark.writing.task_messages import Task, Written
from pykraft.spark.writing.write_options import WriteOptions
from pykraft.spark.writing.written_rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_ABORT_MS: Final = 5_000
"""The task has failed, and Spark waits to hear it."""

log: Final = logging.getLogger(__name__)


def write_at_least_once(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> Written:
    """:class:`~pykraft.kafka_client.errors.ProduceError` if a row was not acknowledged."""
    with BlockingProducer(options.client, options.producer) as producer:
        return Written(_send(producer, batches, options).rows)


def write_exactly_once(batches: Iterable[pa.RecordBatch], options: WriteOptions, task: Task) -> Written:
    """Write the rows unless that was done, for ``sink.commit``; epochs of a task rise.

    :class:`~pykraft.spark.writing.markers.OtherRowsError`: others were written.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    rows = filled if first is None else chain((first,), filled)
    topic = None if first is None else next(rows_of(first, options.topic)).topic
    repeated = Written(0, task, topic, is_repeated=True)
    transaction = TransactionConfig(task.id, options.transaction_timeout_ms)
    with closing(Cluster(BlockingNetwork(), options.client)) as cluster:
        # A late attempt must not take over from the next micro-batch, nor one without rows from anybody.
        if _is_written(cluster, rows, options, task, require_stable=topic is None):
            return repeated
        if topic is None:
            return Written(0, task)
        with BlockingProducer(options.client, options.producer, transaction) as producer:
            producer.init_transactions()
            if _is_written(cluster, rows, options, task, require_stable=True):
                return repeated
            producer.begin_transaction()
            try:
                tally = _send(producer, rows, options)
                producer.send_offsets_to_transaction(marker_of(topic, task.epoch, tally), task.id)
                return Written(tally.rows, task, topic, prepared=producer.prepare_transaction())
            except Exception:
                _abort(producer)
                raise


def _is_written(
    cluster: Cluster,
    rows: Iterable[pa.RecordBatch],
    options: WriteOptions,
    task: Task,
    *,
    require_stable: bool,
) -> bool:
    """Whether the marker says so; then the rows are compared with it."""
    marker = run(
        find_marker(cluster, task.id, options.topic, cluster.deadline(), require_stable=require_stable)
    )
    if marker.next_epoch <= task.epoch:
        return False
    check_rows(marker, task, rows)
    return True


def _abort(producer: BlockingProducer) -> None:
    """So that readers need not wait until the transaction times out."""
    try:
        producer.abort_transaction(_ABORT_MS)
    except (KafkaError, RuntimeError) as error:
        log.warning("a transaction is left to its timeout: %s", error)


def _send(producer: BlockingProducer, batches: Iterable[pa.RecordBatch], options: WriteOptions) -> Tally:
    """Send the rows and wait until all are acknowledged; return their tally."""
    failures: list[BaseException] = []

    def done(sent: Future[RecordMetadata]) -> None:
        if (error := sent.exception()) is not None:
            failures.append(error)

    config = options.producer
    max_bytes = min(config.batch_size_bytes, config.max_request_size_bytes) - HEADER_BYTES
    tally = Tally()
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
        tally.add(block)
        if failures:
            break
    producer.flush()
    if failures:
        raise failures[0]
    return tally
