"""Nodes of one system in processes of their own: started, asked, and stopped whatever happens."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self

from pykraft.kafka_protocol.messages.cluster import MetadataRequest
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.formatted import format_node, node_properties, write_properties
from pykraft.testing.processes.listeners import LOOPBACK
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import System
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

CLUSTER_ID = "YmVuY2htYXJrLWNsdXN0ZX"
_START_TIMEOUT_S = 180


class Node(NodeProcess):
    """``port`` is where clients find it."""

    port = 0


class Cluster:
    """Combined nodes 1, 2, …; ``properties`` are for all of them."""

    def __init__(
        self,
        system: System,
        directory: Path,
        count: int,
        properties: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.system = system
        self.directory = directory
        drawn = free_ports(2 * count)
        brokers = {n + 1: Address(LOOPBACK, port) for n, port in enumerate(drawn[:count])}
        controllers = {n + 1: Address(LOOPBACK, port) for n, port in enumerate(drawn[count:])}
        self.nodes = [self._node(i, at.port, environment) for i, at in brokers.items()]
        more = {"offsets.topic.replication.factor": str(count), "log.segment.delete.delay.ms": "100"}
        for node_id in brokers:
            needed = node_properties(node_id, controllers, brokers, self._place(node_id) / "data")
            write_properties(self._properties(node_id), {**needed, **more, **properties})

    def _node(self, node_id: int, port: int, environment: Mapping[str, str] | None) -> Node:
        command = self.system.start_command(self._properties(node_id))
        node = Node(node_id, command, self._place(node_id) / "server.log", environment)
        node.port = port
        return node

    @property
    def port(self) -> int:
        """The port of the first node."""
        return self.nodes[0].port

    def __enter__(self) -> Self:
        """Format and start; stopped in any case."""
        try:
            self.format()
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def format(self) -> None:
        for node in self.nodes:
            format_node(self._properties(node.node_id), CLUSTER_ID, system=self.system)

    def start(self) -> None:
        """Start all nodes; return once each of them knows all."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            is_ready = partial(self._knows_all, node.port)
            wait_until(f"node {node.node_id} starts", is_ready, _START_TIMEOUT_S)

    def stop(self) -> None:
        """A second Ctrl-C while it waits kills what still runs."""
        try:
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(NodeProcess.stop, self.nodes))
        finally:
            for node in self.nodes:
                node.kill()

    def check_running(self) -> None:
        """RuntimeError, with the end of its log, if a node has ended by itself."""
        for node in self.nodes:
            if (status := node.unordered_exit) is not None:
                raise RuntimeError(f"node {node.node_id} has ended with {status}: {node.output_tail(600)}")

    def _knows_all(self, port: int) -> bool:
        self.check_running()
        try:
            with WireClient(Address(LOOPBACK, port)) as client:
                answer = client.call(MetadataRequest(topics=[]), 9)
        except OSError:
            return False
        return len(answer.brokers) == len(self.nodes)

    def _place(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def _properties(self, node_id: int) -> Path:
        return self._place(node_id) / "server.properties"
