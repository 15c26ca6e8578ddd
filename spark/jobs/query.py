"""A streaming query as a job: it takes what is there, and ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_KEPT_PROGRESS: Final = "spark.sql.streaming.numRecentProgressUpdates"
_ALL: Final = "1000000"
_ERROR: Final = re.compile(r"^[\w.]*(?:Error|Exception): .*", re.MULTILINE)


def innermost_error(text: str) -> str:
    """The last line of what Spark says of a failed query that names an error; its first line if none does."""
    *_, last = _ERROR.findall(text) or [text.partition("\n")[0]]
    return str(last)


def run_to_end(session: SparkSession, writer: DataStreamWriter) -> int:
    """Run with ``Trigger.AvailableNow``; the number of rows it took. An error of the query is raised."""
    session.conf.set(_KEPT_PROGRESS, _ALL)  # otherwise only the last hundred are counted
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return sum(one.numInputRows for one in query.recentProgress)
