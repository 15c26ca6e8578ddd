"""A Spark source that yields the same Arrow batch again and again: what only the hand-over to Spark costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "prebuilt"


class PrebuiltSource(DataSource):
    """Options: ``partitions``, ``batches`` (of a partition), ``rows`` (of a batch), ``value_bytes``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from pykraft.spark.columns import column_names, spark_schema

        return spark_schema(column_names(False))

    def reader(self, schema: StructType) -> PrebuiltReader:
        return PrebuiltReader(*(int(self.options[name]) for name in PrebuiltReader.OPTIONS))


class PrebuiltReader(DataSourceReader):
    OPTIONS = ("partitions", "batches", "rows", "value_bytes")

    def __init__(self, partitions: int, batches: int, rows: int, value_bytes: int) -> None:
        self._partitions = partitions
        self._batches = batches
        self._rows = rows
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from pykraft.spark.columns import COLUMNS, arrow_schema

        rows = self._rows
        numbers = np.arange(rows)
        columns = [
            pa.array([b"%016d" % number for number in numbers], pa.binary()),
            pa.array([bytes(self._value_bytes)] * rows, pa.binary()),
            pa.repeat(pa.scalar("topic", pa.string()), rows),
            pa.array(np.zeros(rows, np.int32)),
            pa.array(numbers),
            pa.array(numbers).cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.zeros(rows, np.int32)),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(COLUMNS))
        for _ in range(self._batches):
            yield batch
