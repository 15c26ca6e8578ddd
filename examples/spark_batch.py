"""Batches in Spark: query a topic as a table, all of it or a part of it.

    python examples/spark_batch.py

starts a node, writes some measurements and prints:

    mean of each sensor:
    +------+------------+----+
    |sensor|measurements|mean|
    +------+------------+----+
    |attic |3           |23.0|
    |cellar|3           |11.0|
    +------+------------+----+

    since 11:00:
    +--------+------+-------+
    |time    |sensor|celsius|
    +--------+------+-------+
    |11:00:00|attic |24.0   |
    |11:05:00|cellar|11.5   |
    +--------+------+-------+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_example import new_topics, produce, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "measurements"
MEASUREMENTS = [
    ("2026-01-01T09:00:00Z", "attic", '{"celsius": 22.0}'),
    ("2026-01-01T09:05:00Z", "cellar", '{"celsius": 10.5}'),
    ("2026-01-01T10:00:00Z", "attic", '{"celsius": 23.0}'),
    ("2026-01-01T10:05:00Z", "cellar", '{"celsius": 11.0}'),
    ("2026-01-01T11:00:00Z", "attic", '{"celsius": 24.0}'),
    ("2026-01-01T11:05:00Z", "cellar", '{"celsius": 11.5}'),
]
ELEVEN_MS = 1_767_265_200_000
"""2026-01-01T11:00:00Z, in milliseconds since 1970."""


def main(session: SparkSession, servers: str) -> None:
    with new_topics(servers, TOPIC):
        produce(servers, TOPIC, MEASUREMENTS)
        measurements(session, servers).createOrReplaceTempView("measurements")
        means = session.sql(
            "SELECT sensor, count(*) AS measurements, avg(celsius) AS mean"
            " FROM measurements GROUP BY sensor ORDER BY sensor"
        )
        print("mean of each sensor:")
        means.show(truncate=False)
        # Brokers find the first offset of that time: what is older is not read at all. A partition may have
        # nothing as new, which would be an error without the second option.
        since = {"startingTimestamp": str(ELEVEN_MS), "startingOffsetsByTimestampStrategy": "latest"}
        recent = measurements(session, servers, **since)
        print("since 11:00:")
        recent.selectExpr("date_format(time, 'HH:mm:ss') AS time", "sensor", "celsius").orderBy("time").show(
            truncate=False
        )


def measurements(session: SparkSession, servers: str, **options: str) -> DataFrame:
    """The topic as a table: where the query is planned, its end is fixed, so it ends there."""
    from pyspark.sql import functions as f

    records = (
        session.read.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .options(**options)
        .load()
    )
    value = f.from_json(f.col("value").cast("string"), "celsius DOUBLE")
    return records.select(
        f.col("timestamp").alias("time"),
        f.col("key").cast("string").alias("sensor"),
        value["celsius"].alias("celsius"),
    )


if __name__ == "__main__":
    run(main, __doc__)
