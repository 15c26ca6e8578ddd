"""1,000 topics, created one by one.

One combined node, topics of one partition, each in a request of its own, one after the other, until the last
one is led. Per topic. Before it is measured 300 other topics are created.
"""

from comparison.frames import connect
from comparison.turn import Figures, Turn

from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

_TOPICS = 1_000
_WARM_UP_TOPICS = 300


def run(turn: Turn) -> None:
    def measure(figures: Figures) -> None:
        count = turn.scaled(_TOPICS)
        with turn.cluster(1) as cluster:
            client = connect(cluster.port)
            _create(client, "warm-up", turn.scaled(_WARM_UP_TOPICS))
            cost = cluster.cost(lambda: _create(client, "topic", count))
        figures.note("CPU", "ms", cost.cpu_s / count * 1e3)
        figures.note("wall", "ms", cost.wall_s / count * 1e3)

    turn.row("create a topic", measure)


def _create(client: WireClient, prefix: str, count: int) -> None:
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        request_topic(client, name, 1, 1)
    wait_until("the last topic", lambda: is_in_sync(client, names[-1:], 1))
