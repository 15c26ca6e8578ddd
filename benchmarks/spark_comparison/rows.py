"""The measurements by family: each function enters one row, whose sides take turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from spark_comparison.results import SIDES, Results, Row
from spark_comparison.topics import KEY_BYTES, PARTITIONS, Load, create_topic, delete_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {"pykraft": "pykraft", "confluent": "confluent", "connector": "kafka"}
MICRO_BATCHES: Final = 8
PLANNED_PARTITIONS: Final = 1000
TRIGGERS: Final = 40
_SETTLED: Final = 10
"""The first micro-batches of a query, which are slower, are left out."""

ABOUT: Final[Mapping[str, str]] = {
    "batch": "all seven columns of a topic of four partitions to Spark's `noop` sink.",
    "to Parquet": "the same to Parquet files.",
    "stream": (
        f"with `Trigger.AvailableNow` in {MICRO_BATCHES} micro-batches, from the start of the query to its"
        " end, to the `noop` sink."
    ),
    "sink": (
        "keys and values from memory to a new topic of four partitions, `acks=all`. The others know at"
        " least once only."
    ),
    "planning": "from `load()` to the list of tasks.",
    "micro-batch": (
        f"the fixed cost: the median of `triggerExecution` over {TRIGGERS - _SETTLED} micro-batches of one"
        " record."
    ),
}


@dataclass
class Bench:
    """``sides``: those that can be measured; the first is ours."""

    session: SparkSession
    servers: str
    rounds: int
    results: Results
    sides: tuple[str, ...]
    directory: Path

    def measure(self, row: Row, work: Mapping[str, Callable[[], float]]) -> None:
        """``work`` returns seconds. The first round warms up."""
        for round_ in range(self.rounds + 1):
            for side, run in work.items():
                seconds = run()
                if round_ > 0:
                    row.seconds.setdefault(side, []).append(round(seconds, 4))
        self.results.rows.append(row)
        texts = (f"{side} {row.median_s(side):.3f} s" for side in work)
        print(f"{row.family}, {row.name}: {', '.join(texts)}", flush=True)

    def compare(self, row: Row, run: Callable[[str], float]) -> None:
        """``run`` does the same on the side of that name."""
        self.measure(row, {side: partial(run, side) for side in self.sides})

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **more,
        }

    def read(self, side: str, topic: str) -> DataFrame:
        return self.session.read.format(FORMATS[side]).options(**self.options(topic)).load()

    @contextmanager
    def scratch(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(dir=self.directory) as path:
            yield path


def timed(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def batch(bench: Bench, load: Load) -> None:
    def to_noop(side: str) -> float:
        frame = bench.read(side, load.topic)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())

    bench.compare(Row("batch", load.name, load.count, load.size_bytes), to_noop)


def to_parquet(bench: Bench, load: Load) -> None:
    def run(side: str) -> float:
        with bench.scratch() as path:
            frame = bench.read(side, load.topic)
            return timed(lambda: frame.write.parquet(f"{path}/files"))

    bench.compare(Row("to Parquet", load.name, load.count, load.size_bytes), run)


def stream(bench: Bench, load: Load) -> None:
    limit = str(load.count // MICRO_BATCHES)

    triggers_s: dict[str, list[float]] = {side: [] for side in bench.sides}

    def run(side: str) -> float:
        started_s = time.monotonic()
        triggers_s[side].append(_median_trigger_s(bench, side, load.topic, limit, MICRO_BATCHES, 0))
        return time.monotonic() - started_s

    bench.compare(Row("stream", load.name, load.count, load.size_bytes), run)
    one = Row("stream", f"{load.name}: one micro-batch", load.count // MICRO_BATCHES, 0)
    one.seconds = {side: found[1:] for side, found in triggers_s.items()}
    bench.results.rows.append(one)


def sink(bench: Bench, load: Load) -> None:
    numbers = count()
    frame = bench.read(SIDES[0], load.topic).select("key", "value").persist()
    frame.count()

    def run(side: str, guarantee: Mapping[str, str]) -> float:
        number = next(numbers)
        topic = f"sink-{load.value_bytes}-{load.codec}-{number}"
        create_topic(bench.servers, topic, PARTITIONS)
        options = {
            "kafka.bootstrap.servers": bench.servers,
            "topic": topic,
            "kafka.compression.type": load.codec,
            **guarantee,
        }
        seconds = timed(lambda: frame.write.format(FORMATS[side]).mode("append").options(**options).save())
        delete_topic(bench.servers, topic)
        return seconds

    about = load.count, load.size_bytes
    bench.compare(Row("sink", f"{load.name}, at least once", *about), lambda side: run(side, {}))
    jobs = (f"job-{number}" for number in count())
    bench.measure(
        Row("sink", f"{load.name}, exactly once", *about),
        {"pykraft": lambda: run("pykraft", {"deliveryGuarantee": "exactly_once", "jobId": next(jobs)})},
    )
    frame.unpersist()


def planning(bench: Bench) -> None:
    topic = "planned"
    create_topic(bench.servers, topic, PLANNED_PARTITIONS)
    produce(bench.servers, topic, "none", ((one, b"key", b"value") for one in range(PLANNED_PARTITIONS)))

    def plan(side: str) -> float:
        tasks = 0

        def run() -> None:
            nonlocal tasks
            tasks = bench.read(side, topic)._jdf.rdd().getNumPartitions()

        seconds = timed(run)
        assert tasks == PLANNED_PARTITIONS, tasks
        return seconds

    bench.compare(Row("planning", f"{PLANNED_PARTITIONS:,} partitions", 0, 0), plan)


def micro_batch(bench: Bench) -> None:
    topic = "triggers"
    create_topic(bench.servers, topic, 1)
    produce(bench.servers, topic, "none", ((0, bytes(KEY_BYTES), b"%d" % one) for one in range(TRIGGERS)))

    def run(side: str) -> float:
        return _median_trigger_s(bench, side, topic, "1", TRIGGERS, _SETTLED)

    bench.compare(Row("micro-batch", "one record", 0, 0), run)


def _median_trigger_s(
    bench: Bench, side: str, topic: str, limit: str, micro_batches: int, settled: int
) -> float:
    """Of all micro-batches but the first ``settled``, in a query that reads the whole topic."""
    with bench.scratch() as path:
        reader = bench.session.readStream.format(FORMATS[side])
        frame = reader.options(**bench.options(topic, maxOffsetsPerTrigger=limit)).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", path)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        filled = [one for one in query.recentProgress if one["numInputRows"] > 0]
    assert len(filled) >= micro_batches, len(filled)
    return float(median(one["durationMs"]["triggerExecution"] for one in filled[settled:])) / 1000
