"""The sink as Spark sees it: one call for the rows of each task, on the executors, and one at the end.

*At least once*: an idempotent producer; a task that Spark runs again writes its rows again.

*Exactly once*: a task writes its rows in one transaction, together with a marker that says so, and leaves the
transaction open. The driver commits it when Spark says that all tasks have succeeded. A task cannot know that
it has: where its rows come from an earlier step that fails, or Spark is killed, they just end, as if these
were all.

Its transactional id is that of (query, partition), and the marker an offset of the group of the same name:
the next micro-batch. A task that is run again (a retry, a speculative copy, a restart of the query) first
takes over the transactional id, which aborts what an earlier attempt has left open and fences it, and only
then looks for the marker: it writes if there is none. So the rows of each (query, micro-batch, partition) are
written once, if the same rows come again when a micro-batch is run again (docs/spark.md), and markers say
enough of them to notice if they do not (``markers``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.producer.prepared_transaction import PreparedTransaction, end_all_prepared
from pykraft.spark.worker_memory import spare_imports
from pykraft.spark.writing.markers import OtherRowsError, record_tasks
from pykraft.spark.writing.task_messages import Messages, Task, Written
from pykraft.spark.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark tells a task of its query; not documented, and held by a test."""

log: Final = logging.getLogger(__name__)


class PykraftWriter(DataSourceArrowWriter):
    """The writer of ``write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(iterator, self._options, lambda: (str(self._options.job_id), 0))

    def commit(self, messages: Messages) -> None:
        commit(messages, self._options)

    def abort(self, messages: Messages) -> None:
        abort(messages, self._options)


class PykraftStreamWriter(DataSourceStreamArrowWriter):
    """The writer of ``writeStream``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(iterator, self._options, lambda: (_property(_QUERY_ID), int(_property(_BATCH_ID))))

    def commit(self, messages: Messages, batchId: int) -> None:
        commit(messages, self._options)

    def abort(self, messages: Messages, batchId: int) -> None:
        abort(messages, self._options)


def _write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, find_epoch: Callable[[], tuple[str, int]]
) -> Written:
    """``find_epoch``: the query and its micro-batch."""
    from pykraft.spark.writing.task_writes import write_at_least_once, write_exactly_once

    spare_imports()
    if not options.is_exactly_once:
        return write_at_least_once(batches, options)
    query_id, epoch = find_epoch()
    task = Task(f"{options.id_prefix}/{query_id}", _context().partitionId(), epoch)
    return write_exactly_once(batches, options, task)


def commit(messages: Messages, options: WriteOptions) -> None:
    """All that the tasks have prepared. The first error is raised when all were tried: the micro-batch is run
    again, and finds what was committed.

    :class:`~.markers.OtherRowsError`, and all is aborted: it was run before, with another number of tasks.
    """
    written = _written(messages)
    cluster = Cluster(BlockingNetwork(), options.client)
    try:
        run(record_tasks(cluster, written, len(messages)))
        errors = run(end_all_prepared(cluster, _prepared(written), committed=True))
    except OtherRowsError:
        abort(messages, options)
        raise
    finally:
        cluster.close()
    if errors:
        raise errors[0]


def abort(messages: Messages, options: WriteOptions) -> None:
    """So that readers need not wait until transactions time out: what fails is a warning."""
    cluster = Cluster(BlockingNetwork(), options.client)
    try:
        errors = run(end_all_prepared(cluster, _prepared(_written(messages)), committed=False))
    finally:
        cluster.close()
    for error in errors:
        log.warning("a transaction is left to its timeout: %s", error)


def _written(messages: Messages) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _prepared(written: list[Written]) -> list[PreparedTransaction]:
    return [one.prepared for one in written if one.prepared is not None]


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _property(name: str) -> str:
    value = _context().getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark has not given this task its {name}, which an exactly-once write needs")
    return str(value)
