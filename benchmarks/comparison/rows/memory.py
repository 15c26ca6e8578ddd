"""Resident memory of one combined node.

Measured 5 s after it answers, and after it has taken and handed out 1 GB in
batches of 64 KiB and answered 100,000 requests of 200 connections. Kafka's heap is 1 GB, as its script
sets it.
"""

import time
from functools import partial

from comparison.cluster import Cluster, rss_mib
from comparison.frames import create_topic, in_parallel, produce_frame, pump, replay_fetch
from comparison.many import exchange, peers
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
    count = turn.scaled(_BATCHES) // len(_PARTITIONS)
    frames = [produce_frame("memory", index, batch, 1) for index in _PARTITIONS]
    in_parallel([partial(_produce, port, frame, count) for frame in frames])
    in_parallel(
        [partial(replay_fetch, port, "memory", index, len(batch), records, count) for index in _PARTITIONS]
    )
    with peers(port, _CONNECTIONS) as opened:
        frame = produce_frame("memory", 0, record_of(1024), 1)
        exchange(opened, [frame] * _CONNECTIONS, turn.scaled(_REQUESTS), check_produced)


def _produce(port: int, frame: bytes, count: int) -> int:
    return pump(port, lambda _: frame, count, 5)
