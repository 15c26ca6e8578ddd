"""acks=all on three nodes, one producer of small records.

Three combined nodes, one partition with three replicas, one record of 100 B a request, over a plain socket:
1, 10 and 100 requests in flight, and 200 a second for 30 s, whose latency counts from the moment at which
they were due. Processor time of all three nodes a request, idle work included. Before it is measured the load
runs once, and for 20 s on new processes.
"""

import time
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect, create_topic, produce_frame, produced
from comparison.load import Loaded, load
from comparison.requests import check_produced
from comparison.turn import Figures, Turn
from comparison.values import record_of

from pykraft.testing.processes.waits import wait_until

_REQUESTS = {1: 10_000, 10: 30_000, 100: 100_000}
"""By how many are in flight."""
_PER_SECOND = 200
_SECONDS = 30


def run(turn: Turn) -> None:
    with turn.cluster(3) as cluster:
        for depth in _REQUESTS:
            name = "one in flight" if depth == 1 else f"{depth} in flight"
            turn.row(name, partial(in_flight, turn, cluster, depth))
        turn.row("200 a second", partial(_paced, turn, cluster))


def in_flight(turn: Turn, cluster: Cluster, depth: int, figures: Figures) -> None:
    """Also measured beside idle partitions."""
    port, frame = _new_topic(turn, cluster)
    count = turn.scaled(_REQUESTS[depth])
    loaded: Loaded | None = None

    def send() -> None:
        nonlocal loaded
        loaded = producer.run(count)

    with load(port, [frame], check_produced, depth=depth) as producer:
        turn.warm_up(cluster, send)
        figures.per_request(cluster.cost(send), count)
    assert loaded is not None
    figures.latencies(loaded.latencies_s)


def _paced(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    producer = _Producer(cluster, turn)
    count = turn.scaled(_PER_SECOND * _SECONDS)
    turn.warm_up(cluster, lambda: producer.paced(count // 2))
    cost = cluster.cost(lambda: producer.paced(count))
    figures.note("CPU", "µs", cost.cpu_s / count * 1e6)
    figures.latencies(producer.latencies_s)


def _new_topic(turn: Turn, cluster: Cluster) -> tuple[int, bytes]:
    """Where its leader listens, and a request that it answers."""
    topic = f"replicated-{turn.next_number()}"
    (leader,) = create_topic(cluster.nodes, topic, 1, 3)
    port, frame = cluster.nodes[leader - 1].port, produce_frame(topic, 0, record_of(100), -1)
    with connect(port) as client:
        wait_until("replication", lambda: produced(client, frame))
    return port, frame


class _Producer:
    """One connection to the leader of a new topic. ``latencies_s`` are those of the last load."""

    def __init__(self, cluster: Cluster, turn: Turn) -> None:
        port, self._frame = _new_topic(turn, cluster)
        self._client = connect(port)
        self.latencies_s: list[float] = []

    def paced(self, count: int) -> None:
        self.latencies_s.clear()
        begin = time.perf_counter()
        for number in range(count):
            due = begin + number / _PER_SECOND
            time.sleep(max(0, due - time.perf_counter()))
            self._request(max(due, begin))

    def _request(self, due: float) -> None:
        self._client.socket.sendall(self._frame)
        answer = self._client.answer()
        self.latencies_s.append(time.perf_counter() - due)
        if len(self.latencies_s) == 1:
            check_produced(answer)
