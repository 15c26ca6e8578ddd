"""Topics to Parquet files, each record once, however often the job is stopped and run again.

A streaming query that ends where the logs end: its checkpoint says which offsets are in the files, and
Spark's file sink lists the files of every micro-batch, so those of one that was cut off do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykraft.spark.jobs.query import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """``topics``: names, or, with ``is_pattern``, a pattern. Files are in ``topic=…/date=…`` of the
    directory, by the time zone of the session."""

    bootstrap_servers: str
    topics: str
    is_pattern: bool
    directory: str
    isolation_level: str
    with_headers: bool
    max_offsets_per_trigger: int | None


def export(session: SparkSession, job: Export) -> int:
    """Go on where an earlier call with the same directory has ended; the number of records."""
    from pyspark.sql import functions as f

    reader = session.readStream.format("pykraft").options(
        **{
            "kafka.bootstrap.servers": job.bootstrap_servers,
            "kafka.isolation.level": job.isolation_level,
            "subscribePattern" if job.is_pattern else "subscribe": job.topics,
            "startingOffsets": "earliest",
            "includeHeaders": str(job.with_headers).lower(),
        }
    )
    if job.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", job.max_offsets_per_trigger)
    dated = reader.load().withColumn("date", f.to_date("timestamp"))
    writer = dated.writeStream.format("parquet").partitionBy("topic", "date").option("path", job.directory)
    # Readers of the directory pass over names that begin with an underscore.
    return run_to_end(session, writer.option("checkpointLocation", f"{job.directory}/_checkpoint"))
