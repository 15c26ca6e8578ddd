"""State in a stream: repeated events are dropped on the way from one topic to another.

    python examples/spark_deduplicate.py

starts a node and writes payments, some of them repeatedly, as a program does that sends again what it got no
answer for. The second query begins with what the first one knew. It prints:

    first query: 5 events, 3 new payments
    second query: 3 events, 1 new payments
    +-------+------+
    |payment|amount|
    +-------+------+
    |p1     |10    |
    |p2     |25    |
    |p3     |7     |
    |p4     |12    |
    +-------+------+

An event is known for REMEMBERED at least, by the timestamps of the records, and then forgotten: the state
does not grow for ever.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from spark_example import new_topics, produce, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_TOPIC = "payment-events"
TOPIC = "payments"
EVENTS = [
    ("2026-01-01T12:00:00Z", "p1", "10"),
    ("2026-01-01T12:00:02Z", "p1", "10"),
    ("2026-01-01T12:00:03Z", "p2", "25"),
    ("2026-01-01T12:00:05Z", "p3", "7"),
    ("2026-01-01T12:00:06Z", "p1", "10"),
]
LATER_EVENTS = [
    ("2026-01-01T12:04:00Z", "p2", "25"),
    ("2026-01-01T12:05:00Z", "p4", "12"),
    ("2026-01-01T12:05:01Z", "p4", "12"),
]
REMEMBERED = "10 minutes"


def main(session: SparkSession, servers: str) -> None:
    with new_topics(servers, EVENTS_TOPIC, TOPIC), TemporaryDirectory() as checkpoint:
        written = 0
        for name, events in (("first", EVENTS), ("second", LATER_EVENTS)):
            produce(servers, EVENTS_TOPIC, events)
            read = deduplicate(session, servers, checkpoint)
            now = payments(session, servers).count()
            print(f"{name} query: {read} events, {now - written} new payments")
            written = now
        payments(session, servers).orderBy("payment").show(truncate=False)


def deduplicate(session: SparkSession, servers: str, checkpoint: str) -> int:
    """Take what is there, and end; the number of events. Each payment is written once, exactly."""
    events = (
        session.readStream.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", EVENTS_TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        events.withWatermark("timestamp", REMEMBERED)
        .dropDuplicatesWithinWatermark(["key"])
        .select("key", "value")
        .writeStream.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TOPIC)
        .option("deliveryGuarantee", "exactly_once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def payments(session: SparkSession, servers: str) -> DataFrame:
    """The topic that was written, without records of transactions that were aborted."""
    records = (
        session.read.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", TOPIC)
        .load()
    )
    return records.selectExpr("cast(key AS string) AS payment", "cast(value AS string) AS amount")


if __name__ == "__main__":
    run(main, __doc__)
