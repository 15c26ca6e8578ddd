"""The data source ``pykraft`` as Spark sees it: a name, a schema, and its readers.

Options are checked in ``options``, ranges planned in ``planner``, records read in ``reader``. Spark looks
this class up in a Python process of its own and pickles it by reference, so this module must be importable
wherever Spark runs Python, and its import must be cheap: numpy and pyarrow are imported where records are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.spark.columns import column_names, select_columns, spark_schema
from pykraft.spark.discovery import ClusterLogs
from pykraft.spark.option_values import OptionError
from pykraft.spark.options import (
    BatchReadOptions,
    ReadOptions,
    includes_headers,
    parse_batch_options,
    parse_stream_options,
)
from pykraft.spark.planner import ReadTask, plan_batch
from pykraft.spark.reader import read_task
from pykraft.spark.writing.write_options import WriteOptions, parse_write_options
from pykraft.spark.writing.written_rows import WriteError, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from pykraft.spark.stream import PykraftStreamReader
    from pykraft.spark.writing.sink import PykraftStreamWriter, PykraftWriter


class PykraftDataSource(DataSource):
    """``spark.read.format("pykraft")`` with the options and columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "pykraft"

    def schema(self) -> str:
        return spark_schema(column_names(includes_headers(self.options)))

    def reader(self, schema: StructType) -> PykraftReader:
        options = parse_batch_options(self.options)
        return PykraftReader(options, _select(schema, options))

    def streamReader(self, schema: StructType) -> PykraftStreamReader:
        from pykraft.spark.stream import PykraftStreamReader  # only a newer pyspark has what it needs

        options = parse_stream_options(self.options)
        return PykraftStreamReader(options, _select(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> PykraftWriter:
        from pykraft.spark.writing.sink import PykraftWriter

        if overwrite:
            raise WriteError("rows can only be appended to a topic: use mode('append')")
        options = self._write_options(schema)
        if options.is_exactly_once and options.job_id is None:
            raise OptionError("a batch that is written exactly once needs a name: set option 'jobId'")
        return PykraftWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PykraftStreamWriter:
        """Every output mode appends: ``overwrite`` is that of the mode ``complete``."""
        from pykraft.spark.writing.sink import PykraftStreamWriter

        return PykraftStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = parse_write_options(self.options)
        check_columns(_columns(schema), options.topic)
        return options


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _select(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    return select_columns(_columns(schema), options.include_headers)


class PykraftReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: BatchReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        cluster = Cluster(BlockingNetwork(), self._options.client)
        try:
            tasks = run(plan_batch(ClusterLogs(cluster, self._options), self._options, self._columns))
        finally:
            cluster.close()
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any partition Spark adds one, whose value is None.
        task: Any = partition.value if partition is not None else None
        if not isinstance(task, ReadTask):
            return iter(())
        return read_task(task)
