"""Nodes of one system as they are compared: measured as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from comparison.frames import MIB, delete_topic
from comparison.systems import System

from pykraft.testing.processes import cluster as processes
from pykraft.testing.processes.cluster import Node
from pykraft.testing.processes.waits import wait_until


class Cost(NamedTuple):
    """Processor time of all nodes, and the time that passed."""

    cpu_s: float
    wall_s: float

    @staticmethod
    def of_all(costs: Iterable[Cost]) -> Cost:
        return Cost(*map(sum, zip(*costs, strict=True)))


class Cluster(processes.Cluster):
    def __init__(self, system: System, directory: Path, count: int, properties: dict[str, str]) -> None:
        super().__init__(system, directory, count, properties, system.environment(directory.parent))
        self.is_warm = False
        """Whether any load has run on it."""

    def delete_topic(self, name: str) -> None:
        """Delete it with its files, so that the next load uses their memory.

        A virtual machine takes ten times as long to write to memory that it has not used before, or that it
        has given back to its host since: a load that grows into such memory measures little else. So a load
        writes less than half a gigabyte, over what the one before it has written.
        """
        self.check_running()
        delete_topic(self.nodes[0], name)
        files = f"node-*/data/{name}-*"
        wait_until(f"the end of {name}", lambda: not any(self.directory.glob(files)))

    def cost(self, work: Callable[[], Any]) -> Cost:
        cpu_s, started = self.cpu_s(), time.monotonic()
        work()
        wall_s = time.monotonic() - started
        return Cost(self.cpu_s() - cpu_s, wall_s)

    def cpu_s(self) -> float:
        """Processor time of all nodes since they started."""
        return sum(node.cpu_s() for node in self.nodes)


def rss_mib(node: Node) -> float:
    return node.rss_bytes() / MIB
