"""Nodes of one system in processes of their own: started, measured as one, and stopped whatever happens."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from comparison.systems import CLUSTER_ID, System
from data_path import Client, Node, delete_topic, stop_cluster, wait_for

from pykraft.kafka_protocol.messages import cluster as cluster_messages
from pykraft.runtime.free_ports import free_ports

_LOG_TAIL_CHARACTERS = 600
_START_TIMEOUT_S = 180


class Cost(NamedTuple):
    """Processor time of all nodes, and the time that passed."""

    cpu_s: float
    wall_s: float

    @staticmethod
    def of_all(costs: Iterable[Cost]) -> Cost:
        return Cost(*map(sum, zip(*costs, strict=True)))


class Cluster:
    """Combined nodes 1, 2, …; ``properties`` are for all of them."""

    def __init__(self, system: System, directory: Path, count: int, properties: dict[str, str]) -> None:
        self.system = system
        self.directory = directory
        self.nodes: list[Node] = []
        self.is_warm = False
        """Whether any load has run on it."""
        ports, controller_ports = free_ports(count), free_ports(count)
        voters = ",".join(f"{n + 1}@127.0.0.1:{port}" for n, port in enumerate(controller_ports))
        for n in range(count):
            lines = {
                "process.roles": "broker,controller",
                "node.id": str(n + 1),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{ports[n]},CONTROLLER://127.0.0.1:{controller_ports[n]}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": f"{directory}/node-{n + 1}/data",
                "offsets.topic.replication.factor": str(count),
                "log.segment.delete.delay.ms": "100",
            } | properties
            (directory / f"node-{n + 1}").mkdir(parents=True)
            self._properties(n + 1).write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.ports = ports

    @property
    def port(self) -> int:
        """Of the first node."""
        return self.ports[0]

    def format(self) -> None:
        for node_id in range(1, len(self.ports) + 1):
            command = self.system.format_command(self._properties(node_id), CLUSTER_ID)
            done = subprocess.run(
                command, env=self._environment(), capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(f"format failed: {(done.stdout + done.stderr)[-_LOG_TAIL_CHARACTERS:]}")

    def start(self) -> None:
        """Start all nodes; return once each of them knows all."""
        for node_id in range(1, len(self.ports) + 1):
            self.start_node(node_id)
        for node in self.nodes:
            is_ready = partial(self._knows_all, node.port)
            wait_for(is_ready, f"node {node.node_id} to start", _START_TIMEOUT_S)

    def start_node(self, node_id: int) -> Node:
        """Start one process, without waiting for it."""
        command = self.system.start_command(self._properties(node_id))
        with open(self._log(node_id), "ab") as log:
            process = subprocess.Popen(command, env=self._environment(), stdout=log, stderr=subprocess.STDOUT)
        node = Node(node_id, self.ports[node_id - 1], process.pid, process)
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        """A second Ctrl-C while it waits kills what still runs."""
        try:
            stop_cluster(self.nodes)
        finally:
            for node in self.nodes:
                if node.process is not None and node.process.poll() is None:
                    node.process.kill()
                    node.process.wait()
            self.nodes.clear()

    def check_running(self) -> None:
        """RuntimeError, with the end of its log, if a node has ended by itself."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is not None:
                tail = self._log(node.node_id).read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
                raise RuntimeError(f"node {node.node_id} has ended with {node.process.returncode}: {tail}")

    def delete_topic(self, name: str) -> None:
        """Delete it with its files, so that the next load uses their memory.

        A virtual machine takes ten times as long to write to memory that it has not used before, or that it
        has given back to its host since: a load that grows into such memory measures little else. So a load
        writes less than half a gigabyte, over what the one before it has written.
        """
        self.check_running()
        delete_topic(self.nodes[0], name)
        wait_for(lambda: not any(self.directory.glob(f"node-*/data/{name}-*")), f"the end of {name}")

    def cpu_s(self) -> float:
        """Processor time of all nodes since they started."""
        return sum(process_cpu_s(node.pid) for node in self.nodes)

    def cost(self, work: Callable[[], Any]) -> Cost:
        cpu_s, started = self.cpu_s(), time.monotonic()
        work()
        wall_s = time.monotonic() - started
        return Cost(self.cpu_s() - cpu_s, wall_s)

    def _knows_all(self, port: int) -> bool:
        self.check_running()
        try:
            client = Client(port)
            with client.socket:
                answer = client.call(cluster_messages.MetadataRequest(topics=[]), 9)
        except OSError:
            return False
        return len(answer.brokers) == len(self.ports)

    def _properties(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "server.properties"

    def _log(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "server.log"

    def _environment(self) -> Mapping[str, str]:
        return self.system.environment(self.directory.parent)


def process_cpu_s(pid: int) -> float:
    """All threads, ended ones too: the clock that ``clock_getcpuclockid`` names, in nanoseconds."""
    return time.clock_gettime((~pid << 3) | 2)


@contextlib.contextmanager
def running(system: System, directory: Path, count: int, properties: dict[str, str]) -> Iterator[Cluster]:
    """A formatted cluster, started; stopped in any case."""
    cluster = Cluster(system, directory, count, properties)
    try:
        cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
