"""1,000 topics, created one by one.

One combined node, topics of one partition, each in a request of its own, one after the other, until the last
one is led. Per topic. Before it is measured 300 other topics are created.
"""

from __future__ import annotations

from comparison.requests import is_in_sync, request_topic
from comparison.turn import Figures, Turn
from data_path import Client, wait_for

_TOPICS = 1_000
_WARM_UP_TOPICS = 300


def run(turn: Turn) -> None:
    def measure(figures: Figures) -> None:
        count = turn.scaled(_TOPICS)
        with turn.cluster(1) as cluster:
            client = Client(cluster.port)
            _create(client, "warm-up", turn.scaled(_WARM_UP_TOPICS))
            cost = cluster.cost(lambda: _create(client, "topic", count))
        figures.note("CPU", "ms", cost.cpu_s / count * 1e3)
        figures.note("wall", "ms", cost.wall_s / count * 1e3)

    turn.row("create a topic", measure)


def _create(client: Client, prefix: str, count: int) -> None:
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        request_topic(client, name, 1, 1)
    wait_for(lambda: is_in_sync(client, names[-1:], 1), "the last topic")
