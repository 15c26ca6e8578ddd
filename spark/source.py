"""The data source ``pykraft`` as Spark sees it: a name, a schema, and a batch reader.

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
from pykraft.spark.options import BatchReadOptions, parse_batch_options
from pykraft.spark.planner import ReadTask, plan_batch
from pykraft.spark.reader import read_task

if TYPE_CHECKING:
    import pyarrow as pa


class PykraftDataSource(DataSource):
    """``spark.read.format("pykraft")`` with the options and columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "pykraft"

    def schema(self) -> str:
        options = parse_batch_options(self.options)
        return spark_schema(column_names(options.include_headers))

    def reader(self, schema: StructType) -> PykraftReader:
        options = parse_batch_options(self.options)
        asked = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return PykraftReader(options, select_columns(asked, options.include_headers))


class PykraftReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: BatchReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        cluster = Cluster(BlockingNetwork(), self._options.client)
        try:
            tasks = run(plan_batch(cluster, self._options, self._columns))
        finally:
            cluster.close()
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any partition Spark adds one, whose value is None.
        task: Any = partition.value if partition is not None else None
        if not isinstance(task, ReadTask):
            return iter(())
        return read_task(task)
