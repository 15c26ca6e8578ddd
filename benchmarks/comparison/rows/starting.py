"""From the start of a process to its first answer.

One formatted combined node that has run before, until it answers ApiVersions; the median of 5 starts in each
turn, after one that is not measured. Processor time until that answer.
"""

import socket
import statistics
import struct
import time

from comparison.cluster import Cluster
from comparison.turn import Figures, Turn

from pykraft.testing.processes.cluster import Node

_TRIES = 5
_GIVE_UP_S = 180
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def run(turn: Turn) -> None:
    def measure(figures: Figures) -> None:
        with turn.cluster(1) as cluster:
            cluster.stop()
            tries = [_start(cluster) for _ in range(2 if turn.quick else _TRIES)]
        figures.note("CPU", "s", statistics.median(cpu_s for cpu_s, _ in tries))
        figures.note("wall", "s", statistics.median(wall_s for _, wall_s in tries))

    turn.row("start", measure)


def _start(cluster: Cluster) -> tuple[float, float]:
    """(processor time, time) until the first answer."""
    started = time.monotonic()
    (node,) = cluster.nodes
    node.start()
    try:
        _ask(cluster, node, started + _GIVE_UP_S)
        wall_s = time.monotonic() - started
        return node.cpu_s(), wall_s
    finally:
        cluster.stop()


def _ask(cluster: Cluster, node: Node, deadline: float) -> None:
    while True:
        try:
            with socket.create_connection(("127.0.0.1", node.port), _GIVE_UP_S) as connection:
                connection.sendall(_API_VERSIONS_V0)
                if connection.recv(4):
                    return
        except OSError:
            cluster.check_running()
            if time.monotonic() > deadline:
                raise
        time.sleep(0.002)
