"""acks=all on three nodes, one producer of small records.

Three combined nodes, one partition with three replicas, one record of 100 B a request, over a plain socket:
10,000 requests one in flight, and 200 a second for 30 s, whose latency counts from the moment at which they
were due. Processor time of all three nodes a request, idle work included. Before it is measured the load runs
once, and for 20 s on new processes.
"""

import time
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect, create_topic, produce_frame, produced
from comparison.requests import check_produced
from comparison.turn import Figures, Turn
from comparison.values import record_of

from pykraft.testing.processes.waits import wait_until

_COUNT = 10_000
_PER_SECOND = 200
_SECONDS = 30


def run(turn: Turn) -> None:
    with turn.cluster(3) as cluster:
        turn.row("one in flight", partial(one_in_flight, turn, cluster))
        turn.row("200 a second", partial(_paced, turn, cluster))


def one_in_flight(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    """Also measured beside idle partitions."""
    producer = _Producer(cluster, turn)
    count = turn.scaled(_COUNT)
    turn.warm_up(cluster, lambda: producer.as_answered(count))
    cost = cluster.cost(lambda: producer.as_answered(count))
    figures.per_request(cost, count)
    figures.latencies(producer.latencies_s)


def _paced(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    producer = _Producer(cluster, turn)
    count = turn.scaled(_PER_SECOND * _SECONDS)
    turn.warm_up(cluster, lambda: producer.paced(count // 2))
    cost = cluster.cost(lambda: producer.paced(count))
    figures.note("CPU", "µs", cost.cpu_s / count * 1e6)
    figures.latencies(producer.latencies_s)


class _Producer:
    """One connection to the leader of a new topic. ``latencies_s`` are those of the last load."""

    def __init__(self, cluster: Cluster, turn: Turn) -> None:
        topic = f"replicated-{turn.next_number()}"
        (leader,) = create_topic(cluster.nodes, topic, 1, 3)
        self._frame = produce_frame(topic, 0, record_of(100), -1)
        self._client = connect(cluster.nodes[leader - 1].port)
        wait_until("replication", lambda: produced(self._client, self._frame))
        self.latencies_s: list[float] = []

    def as_answered(self, count: int) -> None:
        self.latencies_s.clear()
        for _ in range(count):
            self._request(time.perf_counter())

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
