"""Single-partition OffsetCommits of 100 clients on one coordinator.

`offsets.topic.num.partitions=1`, so that all groups have one log; each client has a group of its own without
members, and one request in flight. One program sends prebuilt frames; it shares the cores with the broker,
and what it takes is the `driver CPU`. More commits a second is better. The load runs for 10 s before it is
measured.
"""

import time

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.load import load
from comparison.rows.commits import check_committed, commit_request, wait_until_loaded
from comparison.turn import Figures, Turn
from coordination.watched import watching

from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import frame_of

_TOPIC = "commits"
_VERSION = 7
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
    count = turn.scaled(_COMMITS)
    frames = [frame_of(commit_request(f"group-{number}", 1), _VERSION) for number in range(_CLIENTS)]
    with load(cluster.port, frames, check_committed) as clients:
        enough = time.monotonic() + (0 if turn.quick else _WARM_UP_S)
        clients.run(count)
        while time.monotonic() < enough:
            clients.run(count)
        driver_s = 0.0

        def commit() -> None:
            nonlocal driver_s
            driver_s = clients.run(count).cpu_s

        cost = cluster.cost(commit)
        figures.note("commits", "/s", count / cost.wall_s)
        figures.note("broker CPU of one", "µs", cost.cpu_s / count * 1e6)
        figures.note("driver CPU of one", "µs", driver_s / count * 1e6)
        figures.note("broker CPU", "% of a core", 100 * cost.cpu_s / cost.wall_s)
        with watching(cluster, figures):
            clients.run(count)
