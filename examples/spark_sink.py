"""The sink: a frame and a stream into topics, and what exactly once is worth.

    python examples/spark_sink.py

starts a node and prints:

    a batch, written twice under one jobId
      squares: 100 records, 100 different
    a stream whose end was not stored, and that was started again
      at_least_once: 200 records, 100 different
      exactly_once: 100 records, 100 different

A driver can die when the records of a micro-batch are written and before Spark stores that they are. Then the
next query runs the micro-batch again, because nothing says that it must not; here the file that would say so
is removed. With exactly_once the records themselves say so, by an offset in the same transaction.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from spark_example import new_topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQUARES = "squares"
GUARANTEES = ("at_least_once", "exactly_once")


def main(session: SparkSession, servers: str) -> None:
    with new_topics(servers, SQUARES, *GUARANTEES), TemporaryDirectory() as directory:
        print("a batch, written twice under one jobId")
        for _ in range(2):
            write_squares(session, servers)
        show(session, servers, SQUARES)
        print("a stream whose end was not stored, and that was started again")
        for guarantee in GUARANTEES:
            checkpoint = Path(directory, guarantee)
            copy_squares(session, servers, guarantee, checkpoint)
            forget_end(checkpoint)
            copy_squares(session, servers, guarantee, checkpoint)
            show(session, servers, guarantee)


def write_squares(session: SparkSession, servers: str) -> None:
    """A batch has no checkpoint, so it needs a name to be known by when it is written again."""
    squares = session.range(100).selectExpr("cast(id AS string) AS key", "cast(id * id AS string) AS value")
    (
        squares.write.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", SQUARES)
        .option("deliveryGuarantee", "exactly_once")
        .option("jobId", "squares-of-monday")
        .mode("append")
        .save()
    )


def copy_squares(session: SparkSession, servers: str, guarantee: str, checkpoint: Path) -> None:
    """To the topic that has the name of the guarantee."""
    squares = (
        session.readStream.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", SQUARES)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        squares.select("key", "value")
        .writeStream.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", guarantee)
        .option("deliveryGuarantee", guarantee)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_end(checkpoint: Path) -> None:
    """Of the micro-batch that has copied the squares. It is the second: the first one only stores where the
    query begins. Spark stores a checksum beside each file."""
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()


def show(session: SparkSession, servers: str, topic: str) -> None:
    records = (
        session.read.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    counts = records.selectExpr("count(*) AS all", "count(DISTINCT key) AS different").collect()[0]
    print(f"  {topic}: {counts['all']} records, {counts['different']} different")


if __name__ == "__main__":
    run(main, __doc__)
