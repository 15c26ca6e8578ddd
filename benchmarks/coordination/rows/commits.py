"""Single-partition OffsetCommits of 100 clients on one coordinator.

`offsets.topic.num.partitions=1`, so that all groups have one log; each client has a group of its own without
members, and one request in flight. Two driver processes with 50 connections each send prebuilt frames; they
share the cores with the broker, and what they take is the `driver CPU`. More commits a second is better. The
load runs for 10 s before it is measured.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.many import exchange, peers
from comparison.rows.commits import check_committed, commit_request, wait_until_loaded
from comparison.turn import Figures, Turn
from coordination.watched import watching

from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import frame_of

_TOPIC = "commits"
_VERSION = 7
_DRIVERS = 2
_CLIENTS = 100
_COMMITS = 100_000
_WARM_UP_S = 10


def run(turn: Turn) -> None:
    with turn.cluster(1, offsets_topic_num_partitions="1") as cluster:
        client = connect(cluster.port)
        request_topic(client, _TOPIC, 1, 1)
        wait_until(f"topic {_TOPIC}", lambda: is_in_sync(client, [_TOPIC], 1))
        wait_until_loaded(client, "group-0")
        turn.row("100 clients", lambda figures: _measure(turn, cluster, figures))


def _measure(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    count = turn.scaled(_COMMITS) // _DRIVERS
    with ProcessPoolExecutor(_DRIVERS, mp_context=get_context("spawn")) as pool:
        enough = time.monotonic() + (0 if turn.quick else _WARM_UP_S)
        _load(pool, cluster.port, count)
        while time.monotonic() < enough:
            _load(pool, cluster.port, count)
        broker_s = cluster.cpu_s()
        spans = _load(pool, cluster.port, count)
        broker_s = cluster.cpu_s() - broker_s
        wall_s = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
        all_commits = count * _DRIVERS
        figures.note("commits", "/s", all_commits / wall_s)
        figures.note("broker CPU of one", "µs", broker_s / all_commits * 1e6)
        figures.note("driver CPU of one", "µs", sum(cpu_s for _, _, cpu_s in spans) / all_commits * 1e6)
        figures.note("broker CPU", "% of a core", 100 * broker_s / wall_s)
        with watching(cluster, figures):
            _load(pool, cluster.port, count)


def _load(pool: ProcessPoolExecutor, port: int, count: int) -> list[tuple[float, float, float]]:
    asked = [pool.submit(commit, port, driver, count) for driver in range(_DRIVERS)]
    return [one.result() for one in asked]


def commit(port: int, driver: int, count: int) -> tuple[float, float, float]:
    """In a process of its own: when it began and ended (monotonic), and its processor time."""
    clients = _CLIENTS // _DRIVERS
    names = [f"group-{driver * clients + number}" for number in range(clients)]
    frames = [frame_of(commit_request(name, 1), _VERSION) for name in names]
    with peers(port, clients) as opened:
        began_s, cpu_s = time.monotonic(), time.process_time()
        exchange(opened, frames, count, check_committed)
        return began_s, time.monotonic(), time.process_time() - cpu_s
