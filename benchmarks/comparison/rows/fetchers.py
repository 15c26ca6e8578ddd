"""500 consumers wait at the end of one partition, a connection and a fetch each.

Nothing arrives: every fetch is answered after 500 ms and sent again; processor time as a share of one core,
for 20 s. One record arrives at a time: processor time an answer, and the time until the last of the 500 has
it (median of 200 records). Before it is measured the load runs once, and for 20 s on a new process.
"""

import statistics
import time
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect, create_topic, fetch_frame, produce_frame, produced
from comparison.many import Peers, keep_asking, peers
from comparison.requests import check_fetched, end_offset
from comparison.turn import Figures, Turn
from comparison.values import record_of

_FETCHERS = 500
_SECONDS = 20
_RECORDS = 200
_WAIT_MS = 500
_LONG_WAIT_MS = 30_000
_TOPIC = "fetchers"


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        create_topic(cluster.nodes, _TOPIC, 1, 1)
        turn.row("500 fetchers, nothing arrives", partial(_waiting, turn, cluster))
        turn.row("500 fetchers, one record each", partial(_woken, turn, cluster))


def _waiting(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    seconds = 2 if turn.quick else _SECONDS
    frames = [fetch_frame(_TOPIC, 0, end_offset(cluster.port, _TOPIC, 0), 1 << 20, _WAIT_MS)] * _FETCHERS
    answered = 0

    def load() -> None:
        nonlocal answered
        answered = keep_asking(opened, frames, seconds)

    with peers(cluster.port, _FETCHERS) as opened:
        turn.warm_up(cluster, load)
        cost = cluster.cost(load)
    if answered < _FETCHERS * seconds:
        raise RuntimeError(f"only {answered} fetches were answered in {seconds} s")
    figures.note("CPU", "% of a core", 100 * cost.cpu_s / cost.wall_s)


def _woken(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    records = turn.scaled(_RECORDS)
    with peers(cluster.port, _FETCHERS) as opened:
        load = _Fan(cluster, opened)
        turn.warm_up(cluster, lambda: load.run(records))
        cost = cluster.cost(lambda: load.run(records))
    figures.note("CPU", "µs", cost.cpu_s / records / _FETCHERS * 1e6)
    figures.note("wall", "ms", statistics.median(load.taken_s) * 1e3)


class _Fan:
    """One record at a time to all fetchers."""

    def __init__(self, cluster: Cluster, opened: Peers) -> None:
        self._cluster = cluster
        self._opened = opened
        self._producer = connect(cluster.port)
        self._append = produce_frame(_TOPIC, 0, record_of(100), 1)
        self.taken_s: list[float] = []
        """Of each record of the last load."""

    def run(self, records: int) -> None:
        self.taken_s.clear()
        offset = end_offset(self._cluster.port, _TOPIC, 0)
        for number in range(records):
            frame = fetch_frame(_TOPIC, 0, offset + number, 1 << 20, _LONG_WAIT_MS)
            for peer in self._opened.all:
                peer.send(frame)
            started = time.perf_counter()
            if not produced(self._producer, self._append):
                raise RuntimeError("the record was refused")
            waiting = len(self._opened.all)
            for _, answer in self._opened.answers():
                if waiting == len(self._opened.all):
                    check_fetched(answer)
                waiting -= 1
                if not waiting:
                    break
            self.taken_s.append(time.perf_counter() - started)
