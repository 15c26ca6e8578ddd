"""The streaming reader as Spark sees it (pyspark 4.2 and newer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.spark.discovery import ClusterLogs
from pykraft.spark.options import StreamReadOptions
from pykraft.spark.progress import publish
from pykraft.spark.reader import read_task
from pykraft.spark.stream_offsets import OffsetsJson, from_json, to_json
from pykraft.spark.stream_planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa


class PykraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process of the driver, for as long as the query lives; reads on the executors."""

    def __init__(self, options: StreamReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._opened: tuple[Cluster, StreamPlanner] | None = None
        self._published: OffsetsJson | None = None

    def _open(self) -> tuple[Cluster, StreamPlanner]:
        """Where micro-batches are planned; executors never ask for it."""
        if self._opened is None:
            network = BlockingNetwork()
            cluster = Cluster(network, self._options.client)
            logs = ClusterLogs(cluster, self._options)
            self._opened = cluster, StreamPlanner(logs, self._options, self._columns, network.now_ms)
        return self._opened

    @property
    def _planner(self) -> StreamPlanner:
        return self._open()[1]

    def initialOffset(self) -> OffsetsJson:
        """Nothing is known yet: the first micro-batch stores where the query begins."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark's Python sources can state one limit; the planner knows both."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        run(self._planner.read_what_is_there())

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        self._publish(start)
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(run(self._planner.latest_offsets(from_json(start), is_limited=is_limited)))

    def reportLatestOffset(self) -> OffsetsJson | None:
        newest = self._planner.newest
        return to_json(newest) if newest else None

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        tasks = run(self._planner.plan(from_json(start), from_json(end)))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition.value)

    def commit(self, end: OffsetsJson) -> None:
        """Spark's checkpoint holds the offsets."""

    def _publish(self, start: OffsetsJson) -> None:
        """All before ``start`` is processed.

        Spark calls :meth:`commit` for a micro-batch only when it has planned the next, which at the end of a
        topic may be never: the group would lag behind a query that does not.
        """
        group_id = self._options.published_group
        if group_id is not None and start and start != self._published:
            self._published = start
            run(publish(self._open()[0], group_id, from_json(start)))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
