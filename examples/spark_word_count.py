"""A stream in Spark: words per minute, from a topic of lines to Parquet files, each result once.

    python examples/spark_word_count.py

starts a node, writes some lines and counts their words; later lines are counted by a second query, which
goes on where the first has ended. It prints:

    after three lines:
    +-----+----+-----+
    |from |word|count|
    +-----+----+-----+
    |12:00|be  |2    |
    |12:00|not |1    |
    |12:00|or  |1    |
    |12:00|to  |2    |
    +-----+----+-----+

    after five lines:
    +-----+----+-----+
    |from |word|count|
    +-----+----+-----+
    |12:00|be  |2    |
    |12:00|not |1    |
    |12:00|or  |1    |
    |12:00|to  |2    |
    |12:01|be  |1    |
    |12:01|let |1    |
    |12:01|so  |1    |
    +-----+----+-----+

A file cannot be changed once it is written, so a minute is written when it is over: when a record has come
whose timestamp is LATENESS past its end. That of the last line is still open.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from spark_example import new_topics, produce, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "lines"
LINES = [
    ("2026-01-01T12:00:05Z", "hamlet", "to be or"),
    ("2026-01-01T12:00:50Z", "hamlet", "not to be"),
    ("2026-01-01T12:01:40Z", "hamlet", "let be"),
]
LATER_LINES = [
    ("2026-01-01T12:01:10Z", "hamlet", "so"),  # late, but its minute is still open
    ("2026-01-01T12:03:00Z", "hamlet", "the rest is silence"),
]
LATENESS = "30 seconds"


def main(session: SparkSession, servers: str) -> None:
    with new_topics(servers, TOPIC), TemporaryDirectory() as directory:
        produce(servers, TOPIC, LINES)
        count_words(session, servers, directory)
        print("after three lines:")
        show(session, directory)
        produce(servers, TOPIC, LATER_LINES)
        count_words(session, servers, directory)
        print("after five lines:")
        show(session, directory)


def count_words(session: SparkSession, servers: str, directory: str) -> None:
    """Take what is there, and end. Without the trigger the query would run until it is stopped."""
    lines = (
        session.readStream.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        words_per_minute(lines)
        .writeStream.format("parquet")
        .option("path", f"{directory}/words")
        .option("checkpointLocation", f"{directory}/checkpoint")  # offsets, and the minutes that are open
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def words_per_minute(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    words = lines.select("timestamp", f.explode(f.split(f.col("value").cast("string"), " ")).alias("word"))
    counts = (
        words.withWatermark("timestamp", LATENESS).groupBy(f.window("timestamp", "1 minute"), "word").count()
    )
    return counts.select("window.start", "word", "count")


def show(session: SparkSession, directory: str) -> None:
    """Spark's files say which of them count, so that one of a query that was killed is not read."""
    words = session.read.parquet(f"{directory}/words").orderBy("start", "word")
    words.selectExpr("date_format(start, 'HH:mm') AS from", "word", "count").show(truncate=False)


if __name__ == "__main__":
    run(main, __doc__)
