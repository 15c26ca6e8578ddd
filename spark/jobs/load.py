"""Files into a topic, each row once, however often the job is stopped and run again.

A streaming query over the files that are there: its checkpoint lists those that were read. A micro-batch
takes so many files, and the next waits until all of their records are acknowledged; within one the producer's
buffer holds back the reading.

A micro-batch that is run again must have the same rows in the same tasks (docs/spark.md, Exactly once), but
Spark cuts files up by the number of cores: the cuts are fixed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykraft.spark.jobs.query import run_to_end
from pykraft.spark.writing.written_rows import WriteError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CUTS: Final = {
    "spark.sql.files.minPartitionNum": "8",
    "spark.sql.files.maxPartitionNum": str(2**31 - 1),
    "spark.sql.files.maxPartitionBytes": str(128 << 20),
    "spark.sql.files.openCostInBytes": str(4 << 20),
}
"""All that says how files become tasks. Other values need new checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``format``: csv, json, parquet or text, with Spark's ``options`` of it. ``value``: a column; None: the
    whole row as JSON. ``schema``: DDL; None: that of the files that are there."""

    bootstrap_servers: str
    topic: str
    path: str
    format: str
    options: Mapping[str, str]
    schema: str | None
    key: str | None
    value: str | None
    checkpoint: str
    delivery_guarantee: str
    max_files_per_trigger: int


def load(session: SparkSession, job: Load) -> int:
    """Go on where an earlier call with the same checkpoint has ended; the number of rows.

    :class:`WriteError` for a column that the files do not have.
    """
    there = session.read.format(job.format).options(**job.options)
    schema = there.load(job.path).schema if job.schema is None else job.schema
    reader = session.readStream.format(job.format).options(**job.options).schema(schema)
    rows = reader.option("maxFilesPerTrigger", job.max_files_per_trigger).load(job.path)
    writer = (
        as_records(rows, job.key, job.value)
        .writeStream.format("pykraft")
        .options(
            **{
                "kafka.bootstrap.servers": job.bootstrap_servers,
                "topic": job.topic,
                "deliveryGuarantee": job.delivery_guarantee,
                "checkpointLocation": job.checkpoint,
            }
        )
    )
    with _fixed_cuts(session):
        return run_to_end(session, writer)


@contextmanager
def _fixed_cuts(session: SparkSession) -> Iterator[None]:
    """A query takes the settings that its session has when it starts."""
    before = {name: session.conf.get(name, None) for name in _CUTS}
    for name, value in _CUTS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, kept)


def as_records(rows: DataFrame, key: str | None, value: str | None) -> DataFrame:
    """The columns that the sink takes; what is neither text nor bytes is written as text."""
    from pyspark.sql import functions as f

    for name in (key, value):
        if name is not None and name not in rows.columns:
            raise WriteError(f"the files have no column {name!r}, only {', '.join(rows.columns)}")
    types = dict(rows.dtypes)

    def content(name: str) -> Column:
        column = f.col(f"`{name}`")
        return column if types[name] == "binary" else column.cast("string")

    columns = [f.to_json(f.struct("*")) if value is None else content(value)]
    if key is not None:
        columns.append(content(key).alias("key"))
    return rows.select(columns[0].alias("value"), *columns[1:])
