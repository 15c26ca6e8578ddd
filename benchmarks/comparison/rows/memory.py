"""Resident memory of one combined node.

Measured 5 s after it answers, and after it has taken and handed out 1 GB in
batches of 64 KiB and answered 100,000 requests of 200 connections. Kafka's heap is 1 GB, as its script
sets it.
"""

import time

from comparison.cluster import Cluster, rss_mib
from comparison.frames import create_topic, produce_frame
from comparison.load import load, load_fetches
from comparison.requests import check_produced
from comparison.turn import Figures, Turn
from comparison.values import batch_of, record_of

_SETTLE_S = 5
_BATCHES = 16_000
_REQUESTS = 100_000
_CONNECTIONS = 200
_PARTITIONS = (0, 1)


def run(turn: Turn) -> None:
    def after_start(figures: Figures) -> None:
        with turn.cluster(1) as cluster:
            time.sleep(_SETTLE_S)
            figures.note("memory", "MiB", rss_mib(cluster.nodes[0]))

    def after_loads(figures: Figures) -> None:
        with turn.cluster(1) as cluster:
            _load(turn, cluster)
            figures.note("memory", "MiB", rss_mib(cluster.nodes[0]))

    turn.row("after start", after_start)
    turn.row("after the loads", after_loads)


def _load(turn: Turn, cluster: Cluster) -> None:
    port = cluster.port
    create_topic(cluster.nodes, "memory", len(_PARTITIONS), 1)
    batch, records = batch_of(64 << 10)
    count = turn.scaled(_BATCHES)
    frames = [produce_frame("memory", index, batch, 1) for index in _PARTITIONS]
    with load(port, frames, check_produced, depth=5) as producers:
        producers.run(count)
    with load_fetches(port, "memory", _PARTITIONS, len(batch), records) as fetchers:
        fetchers.run(count)
    small = [produce_frame("memory", 0, record_of(1024), 1)]
    with load(port, small, check_produced, connections=_CONNECTIONS) as producers:
        producers.run(turn.scaled(_REQUESTS))
