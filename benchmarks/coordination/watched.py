"""This broker with a watch on its event loop, which is off unless a row asks for it."""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from comparison.cluster import Cluster
from comparison.systems import Pykraft
from comparison.turn import Figures

from pykraft.testing.processes.waits import wait_until

_NODE: Final = Path(__file__).resolve().parents[1] / "watched_node.py"
_WATCH: Final = "PYKRAFT_WATCH"
_HEARTBEAT_INTERVAL_MS: Final = 2_000


class Watched(Pykraft):
    def start_command(self, properties: Path) -> list[str]:
        return [sys.executable, str(_NODE), "server", "start", str(properties)]

    def environment(self, scratch: Path) -> dict[str, str]:
        return super().environment(scratch) | {_WATCH: str(_seen(scratch))}


def _seen(scratch: Path) -> Path:
    return scratch / "watch"


@contextlib.contextmanager
def watching(cluster: Cluster, figures: Figures) -> Iterator[None]:
    """Note the longest turn of the broker's loop and how late its heartbeats were; of this broker only."""
    if not isinstance(cluster.system, Watched):
        yield
        return
    node, seen = cluster.nodes[0], _seen(cluster.directory.parent)
    seen.unlink(missing_ok=True)
    node.send_signal(signal.SIGUSR1)
    yield
    node.send_signal(signal.SIGUSR2)
    wait_until("what the node has seen", seen.exists)
    found = json.loads(seen.read_text())
    figures.note("longest turn", "ms", found["max_ms"])
    figures.note("longest turn, its processor time", "ms", found["max_cpu_ms"])
    figures.note("heartbeat to the controller, latest", "ms late", late_ms(found))


def late_ms(found: dict[str, float]) -> float:
    return max(0.0, found["heartbeat_pause_ms"] - _HEARTBEAT_INTERVAL_MS)
