"""Small producers, which wait for each answer.

Each connection sends one record of 1 KiB, acks=1, and waits for the answer before it sends the next; 20
partitions. Per request. Before it is measured the load runs once, and for 20 s on a new process.
"""

from functools import partial

from comparison.cluster import Cluster
from comparison.frames import create_topic, produce_frame
from comparison.load import load
from comparison.requests import check_produced, end_offset
from comparison.turn import Figures, Turn
from comparison.values import record_of

_PARTITIONS = 20
_REQUESTS = {1: 30_000, 10: 50_000, 100: 100_000, 200: 100_000}


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        for connections in _REQUESTS:
            name = f"{connections} producer{'s' if connections > 1 else ''}"
            turn.row(name, partial(_measure, turn, cluster, connections))


def _measure(turn: Turn, cluster: Cluster, connections: int, figures: Figures) -> None:
    topic = f"producers-{turn.next_number()}"
    create_topic(cluster.nodes, topic, _PARTITIONS, 1)
    frames = [produce_frame(topic, number % _PARTITIONS, record_of(1024), 1) for number in range(connections)]
    count = max(connections, turn.scaled(_REQUESTS[connections]))
    loads = 0

    def send() -> None:
        nonlocal loads
        producers.run(count)
        loads += 1

    with load(cluster.port, frames, check_produced) as producers:
        turn.warm_up(cluster, send)
        figures.per_request(cluster.cost(send), count)
    ends = sum(end_offset(cluster.port, topic, index) for index in range(_PARTITIONS))
    if ends != _PARTITIONS + loads * count:  # each partition begins with the record that probed it
        raise RuntimeError(f"{ends} records are in the log after {loads} loads of {count}")
