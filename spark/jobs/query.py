"""A streaming query as a job: it takes what is there, and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_KEPT_PROGRESS: Final = "spark.sql.streaming.numRecentProgressUpdates"
_ALL: Final = "1000000"


def run_to_end(session: SparkSession, writer: DataStreamWriter) -> int:
    """Run with ``Trigger.AvailableNow``; the number of rows it took. An error of the query is raised."""
    session.conf.set(_KEPT_PROGRESS, _ALL)  # otherwise only the last hundred are counted
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return sum(one.numInputRows for one in query.recentProgress)
