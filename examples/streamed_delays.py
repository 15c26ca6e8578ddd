"""Departure delays of each carrier as a stream: from a topic of flights to a topic of results, exactly once.

Every flight counts in the window of its record's timestamp. A window is written when it can get no more
records: when the newest timestamp is ``LATENESS`` past its end (the watermark). The last windows would wait
for ever, so a record that is no flight, and comes from the future, ends the stream. Its own window stays
open.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from confluent_kafka import Producer
from mean_departure_delay import Delays, delay_sums, delays_in, flight_of_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW = "1 second"
LATENESS = "10 minutes"
"""More than a record can wait for its leader: one that came later would not be counted."""

_PAST_ALL_WINDOWS_MS = 3_600_000
_RESULT_FIELDS = "carrier STRING, rows BIGINT, delayed_rows BIGINT, sum_minutes BIGINT"


@dataclass(frozen=True, slots=True)
class Streamed:
    """``windows``: the records of the result topic, one for each carrier and window."""

    by_carrier: dict[str, Delays]
    windows: int
    micro_batches: int


class StreamedDelays:
    """The query, from its start to its figures; both topics must exist."""

    def __init__(
        self, session: SparkSession, bootstrap_servers: str, flights_topic: str, result_topic: str
    ) -> None:
        self._session = session
        self._servers = bootstrap_servers
        self._flights_topic = flights_topic
        self._result_topic = result_topic
        self._checkpoint = tempfile.TemporaryDirectory(prefix="pykraft-demo-checkpoint-")
        self._query: StreamingQuery | None = None

    def __enter__(self) -> Self:
        flights = self._session.readStream.format("pykraft").options(**self._from(self._flights_topic))
        results = windows_of(flights.option("startingOffsets", "earliest").load())
        writer = results.writeStream.format("pykraft").option("kafka.bootstrap.servers", self._servers)
        self._query = (
            writer.option("topic", self._result_topic)
            .option("deliveryGuarantee", "exactly_once")
            .option("checkpointLocation", self._checkpoint.name)
            .start()
        )
        return self

    def finish(self) -> Streamed:
        """Read to the end, close the last windows, and sum up what is in the result topic."""
        assert self._query is not None
        _end_stream(self._servers, self._flights_topic)
        self._query.processAllAvailable()
        progress = self._query.lastProgress
        assert progress is not None  # the record above was read
        batches = int(progress["batchId"]) + 1
        results = self._session.read.format("pykraft").options(**self._from(self._result_topic)).load()
        return _sum_up(results, batches)

    def _from(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._query is not None:
            self._query.stop()
        self._checkpoint.cleanup()


def windows_of(records: DataFrame) -> DataFrame:
    """From flight records to result records: key (the carrier) and value (JSON)."""
    from pyspark.sql import functions as f

    flights = records.select("timestamp", flight_of_value())
    by_window = (
        flights.withWatermark("timestamp", LATENESS)
        .groupBy(f.window("timestamp", WINDOW), "flight.carrier")
        .agg(*delay_sums())
    )
    value = f.struct("carrier", f.col("window.start").alias("start"), "rows", "delayed_rows", "sum_minutes")
    return by_window.select(f.col("carrier").alias("key"), f.to_json(value).alias("value"))


def _end_stream(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "error_cb": lambda _: None})
    producer.produce(topic, b"{}", timestamp=int(time.time() * 1000) + _PAST_ALL_WINDOWS_MS)
    if producer.flush(30):
        raise RuntimeError("the record that ends the stream was not acknowledged")


def _sum_up(results: DataFrame, micro_batches: int) -> Streamed:
    from pyspark.sql import functions as f

    rows = results.select(f.from_json(f.col("value").cast("string"), _RESULT_FIELDS).alias("it")).select(
        "it.*"
    )
    totals = (
        rows.groupBy("carrier")
        .agg(
            f.count("*").alias("windows"),
            *(f.sum(name).alias(name) for name in ("rows", "delayed_rows", "sum_minutes")),
        )
        .collect()
    )
    return Streamed(delays_in(totals), sum(row["windows"] for row in totals), micro_batches)
