"""Cost of an idle cluster, and of idle partitions to a producer.

Three combined nodes that only hold partitions with three replicas: processor time for 30 s, 20 s after all
replicas are in sync, as a share of one core, a node; and the largest resident memory of a node. Beside them,
acks=all with one request in flight, as in the family `replicated`.
"""

import time
from functools import partial

from comparison.cluster import Cluster, rss_mib
from comparison.frames import connect
from comparison.rows.replicated import in_flight
from comparison.turn import Figures, Turn

from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until

_PARTITION_COUNTS = (1, 1_000, 5_000)
_PARTITIONS_A_TOPIC = 100
_SETTLE_S = 20
_SECONDS = 30
_IN_SYNC_TIMEOUT_S = 300


def run(turn: Turn) -> None:
    for count in _PARTITION_COUNTS:
        idle = f"{count:,} partition{'s' if count > 1 else ''}"
        beside = f"acks=all beside {idle}"
        if not turn.wants(idle) and not turn.wants(beside):
            continue
        try:
            with turn.cluster(3) as cluster:
                _create(cluster, max(1, count // 20) if turn.quick else count)
                turn.row(idle, partial(_idle, turn, cluster))
                turn.row(beside, partial(in_flight, turn, cluster, 1))
        except Exception as error:
            turn.fail(f"{idle}, to create them", error)


def _idle(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    time.sleep(1 if turn.quick else _SETTLE_S)
    cost = cluster.cost(lambda: time.sleep(2 if turn.quick else _SECONDS))
    figures.note("CPU", "% of a core", 100 * cost.cpu_s / cost.wall_s / len(cluster.nodes))
    figures.note("memory", "MiB", max(rss_mib(node) for node in cluster.nodes))


def _create(cluster: Cluster, partitions: int) -> None:
    client = connect(cluster.port)
    names = []
    for first in range(0, partitions, _PARTITIONS_A_TOPIC):
        names.append(f"idle-{first}")
        request_topic(client, names[-1], min(_PARTITIONS_A_TOPIC, partitions - first), 3)
    wait_until("all replicas to be in sync", lambda: is_in_sync(client, names, 3), _IN_SYNC_TIMEOUT_S)
