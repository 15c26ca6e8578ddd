"""One cluster, one source topic and two queries for all rounds; in each round faults, peace and judgement.

Peace: the brokers are back, what is left of earlier drivers is ended, nothing more is written to the source,
and a driver runs until both checkpoints hold the ends of the source.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.history import HistoryWriter, is_fault, read_history
from pykraft.jepsen_like.faults.nemeses.choice import choose
from pykraft.jepsen_like.faults.nemeses.nemesis import Nemesis
from pykraft.jepsen_like.faults.nemeses.planning import plan_faults
from pykraft.jepsen_like.faults.spark_rounds.breaking import carry_out
from pykraft.jepsen_like.faults.spark_rounds.checkpoints import last_micro_batch, stored_offsets
from pykraft.jepsen_like.faults.spark_rounds.driver import QUERIES, Files
from pykraft.jepsen_like.faults.spark_rounds.driver_process import DriverProcess
from pykraft.jepsen_like.faults.spark_rounds.feed import Feed
from pykraft.jepsen_like.faults.spark_rounds.findings import Seen, anomalies
from pykraft.jepsen_like.faults.spark_rounds.plan import plan_round
from pykraft.jepsen_like.faults.spark_rounds.tally import Tally, read_failures
from pykraft.jepsen_like.faults.spark_rounds.topics import (
    CONFIGS,
    FIRST_PARTITIONS,
    SINK,
    SINK_PARTITIONS,
    SOURCE,
    Topics,
)
from pykraft.jepsen_like.faults.spark_rounds.written import parquet_records, sink_copies, source_records
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.waits import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEALED_TIMEOUT_S: Final = 90.0
_CAUGHT_UP_TIMEOUT_S: Final = 240.0
_POLL_S: Final = 0.3


class Rounds:
    """All that runs; made by :func:`running`."""

    def __init__(
        self,
        directory: Path,
        cluster: ProcessCluster,
        driver: DriverProcess,
        topics: Topics,
        feed: Feed,
        session: SparkSession,
    ) -> None:
        self._directory = directory
        self._files = Files(directory)
        self._cluster = cluster
        self.driver = driver
        self._topics = topics
        self._feed = feed
        self._session = session
        self.tally = Tally()

    def play(self, seed: int, number: int, time_limit_s: float) -> list[str]:
        """One round; its anomalies, which are in the tally as well."""
        self._feed.resume()
        wait_until("both queries are under way", self._is_under_way, _CAUGHT_UP_TIMEOUT_S, interval_s=_POLL_S)
        self._break(seed, number, time_limit_s)
        self._make_peace()
        found = [f"round {number}: {one}" for one in self._judge()]
        self.tally.rounds += 1
        self.tally.anomalies += found
        return found

    def _break(self, seed: int, number: int, time_limit_s: float) -> None:
        """The nemesis breaks brokers in a thread of its own."""
        plan = plan_round(seed, number, time_limit_s)
        file = self._directory / f"round-{number}.jsonl"
        stopping = threading.Event()
        with HistoryWriter(file) as history:
            draw = random.Random(f"{seed}/{number}/brokers").randrange(1 << 30)
            kinds, session_s = choose("signals"), self._cluster.session_timeout_ms / 1000
            faults = plan_faults(draw, time_limit_s, kinds, session_s)
            nemesis = Nemesis(self._cluster, (SOURCE,), faults, history)
            thread = threading.Thread(target=nemesis.run, args=(time_limit_s,), name="nemesis")
            thread.start()
            try:
                self.tally.faults += carry_out(
                    plan, time_limit_s, self.driver, self._topics, self._feed, stopping
                )
            finally:
                nemesis.stop()
                thread.join()
        self.tally.faults.update(f"broker: {event.op}" for event in read_history(file) if is_fault(event))

    def _make_peace(self) -> None:
        self.driver.end_earlier()
        self._cluster.heal()
        for topic in (SOURCE, SINK):
            self._cluster.wait_in_sync(topic, _HEALED_TIMEOUT_S)
        self._feed.pause()
        ends = self._topics.ends(SOURCE)
        wait_until(
            "both queries have read everything",
            lambda: self._have_read(ends),
            _CAUGHT_UP_TIMEOUT_S,
            interval_s=_POLL_S,
        )

    def _is_under_way(self) -> bool:
        self._keep_driver()
        return all(stored_offsets(self._files.checkpoint(query)) for query in QUERIES)

    def _have_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        self._keep_driver()
        return all(stored_offsets(self._files.checkpoint(query)) == ends for query in QUERIES)

    def _keep_driver(self) -> None:
        if not self.driver.is_running:
            self.driver.start()

    def _judge(self) -> list[str]:
        servers, tally = self._cluster.bootstrap_servers, self.tally
        tally.partitions = self._topics.count(SOURCE)
        seen = Seen(
            acknowledged=self._feed.acknowledged,
            sent=self._feed.sent,
            source=source_records(servers, SOURCE, tally.partitions),
            sink=sink_copies(servers, SINK, SINK_PARTITIONS),
            parquet=parquet_records(self._session, self._files.parquet),
            open_transactions=self._topics.open_transactions(SINK),
        )
        tally.sent, tally.acknowledged, tally.copied = seen.sent, len(seen.acknowledged), len(seen.source)
        tally.driver_starts = len(self.driver.session_ids)
        for query in QUERIES:
            tally.micro_batches[query] = (last_micro_batch(self._files.checkpoint(query)) or 0) + 1
        tally.failures, losses = read_failures(self._files.errors)
        return anomalies(seen) + losses


@contextmanager
def running(directory: Path, session: SparkSession) -> Iterator[Rounds]:
    """A cluster and the feed, without a driver yet; all end with it. ``session`` reads the Parquet files."""
    directory.mkdir(parents=True, exist_ok=True)
    with ProcessCluster(directory / "cluster", 3, FAST_FAILOVER) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic(SOURCE, FIRST_PARTITIONS, configs=CONFIGS)
        cluster.create_topic(SINK, SINK_PARTITIONS, configs=CONFIGS)
        servers = cluster.bootstrap_servers
        arguments = ["--bootstrap-servers", servers, "--source", SOURCE, "--sink", SINK]
        arguments += ["--directory", str(directory)]
        with (
            Topics(servers) as topics,
            DriverProcess(arguments, directory / "driver.log") as driver,
            Feed(servers, SOURCE, FIRST_PARTITIONS) as feed,
        ):
            yield Rounds(directory, cluster, driver, topics, feed, session)
