"""The driver that is killed: two streaming queries from one topic, to another topic and to Parquet.

``python -m pykraft.jepsen_like.faults.spark_rounds.driver``, in its own process, which ends when a query
fails; what it failed with is a line of the file of errors. Its watcher starts it again: not the
query alone, since what the queries of a session share in Spark may be spoilt.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykraft.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MASTER: Final = "local[2,4]"
"""A task may fail three times: with local[2] the first failure would end the query."""
TO_TOPIC: Final = "to-topic"
TO_PARQUET: Final = "to-parquet"
QUERIES: Final = (TO_TOPIC, TO_PARQUET)

_ROWS_AT_A_TIME: Final = "16"
"""Between Spark and its Python: a process that dies leaves tasks with part of their rows (default 10,000)"""
_REQUEST_TIMEOUT_MS: Final = "5000"
"""A paused broker keeps its connections: with 30 s a query would do nothing for most of a round."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files of the queries, below one directory."""

    directory: Path

    @property
    def parquet(self) -> Path:
        return self.directory / "parquet"

    @property
    def errors(self) -> Path:
        """JSON lines: query, error."""
        return self.directory / "errors.jsonl"

    def checkpoint(self, query: str) -> Path:
        return self.directory / f"checkpoint-{query}"


def run(session: SparkSession, servers: str, source: str, sink: str, files: Files) -> None:
    """Until a query fails."""
    from pyspark.errors import StreamingQueryException

    records = _records(session, servers, source)
    queries = {
        TO_TOPIC: _copy_to_topic(records, servers, sink, files),
        TO_PARQUET: _copy_to_parquet(records, files),
    }
    with suppress(StreamingQueryException):
        session.streams.awaitAnyTermination()
    for name, query in queries.items():
        if not query.isActive:
            _report(files, name, query.exception())


def _records(session: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = session.readStream.format("pykraft").option("kafka.bootstrap.servers", servers)
    return (
        reader.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.request.timeout.ms", _REQUEST_TIMEOUT_MS)
        .load()
    )


def _copy_to_topic(records: DataFrame, servers: str, topic: str, files: Files) -> StreamingQuery:
    """Values name the record that was copied; the keys keep the order of each source partition."""
    named = "concat(partition, ':', offset, ':', cast(value as string)) as value"
    writer = records.selectExpr("cast(partition as string) as key", named).writeStream.format("pykraft")
    return (
        writer.option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly_once")
        .option("kafka.request.timeout.ms", _REQUEST_TIMEOUT_MS)
        .option("checkpointLocation", str(files.checkpoint(TO_TOPIC)))
        .start()
    )


def _copy_to_parquet(records: DataFrame, files: Files) -> StreamingQuery:
    rows = records.selectExpr("partition", "offset", "cast(cast(value as string) as bigint) as number")
    writer = rows.writeStream.format("parquet").option("path", str(files.parquet))
    return writer.option("checkpointLocation", str(files.checkpoint(TO_PARQUET))).start()


def _report(files: Files, query: str, error: BaseException | None) -> None:
    """With all causes: the exception of a query often says only that writing has failed."""
    told = []
    while error is not None:
        told.append(str(error))
        error = getattr(error, "_cause", None)
    with files.errors.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"query": query, "error": "\n".join(told)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--bootstrap-servers", "--source", "--sink"):
        parser.add_argument(name, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    session = local_session(
        "spark-rounds",
        MASTER,
        spark__log__level="WARN",
        spark__sql__execution__arrow__maxRecordsPerBatch=_ROWS_AT_A_TIME,
    )
    run(session, options.bootstrap_servers, options.source, options.sink, Files(options.directory))


if __name__ == "__main__":
    main()
