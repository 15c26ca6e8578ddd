"""A cluster of real node processes on loopback: formatted with the real commands, started, probed, stopped.

Every node is combined (broker and controller), keeps its data in a directory of its own and prints to a
file. Decides how a test cluster is configured and when it is ready or healed; what to break and when is the
nemesis's business.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.awaiting import Deadline, WaitError, wait_until
from pykraft.jepsen_like.cluster_probe import ClusterProbe, QuorumView, TopicView
from pykraft.jepsen_like.free_ports import free_ports
from pykraft.jepsen_like.node_process import NodeProcess
from pykraft.runtime.address import Address

HOST = "127.0.0.1"
COMMAND_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 60.0

# A dead broker is noticed sooner than with Kafka's defaults (9 s, 30 s): a short run holds many failovers.
FAST_FAILOVER: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
}


class ProcessCluster:
    """``nodes`` combined nodes with ids from 1. Use as a context manager: leaving ends every process."""

    def __init__(self, directory: Path, nodes: int = 3, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        ids = range(1, nodes + 1)
        ports = free_ports(3 * nodes)
        self.addresses = {i: Address(HOST, port) for i, port in zip(ids, ports[:nodes], strict=True)}
        self.controllers = {
            i: Address(HOST, port) for i, port in zip(ids, ports[nodes : 2 * nodes], strict=True)
        }
        """Where each controller answers Kafka's protocol."""
        self._controller_ports = dict(zip(ids, ports[2 * nodes :], strict=True))
        self._properties = dict(properties or {})
        self._admin: AdminClient | None = None
        self.nodes = {
            i: NodeProcess(i, cli("server", "start", str(self.config_file(i))), directory / f"node-{i}.log")
            for i in ids
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(address) for address in self.addresses.values())

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(str(address) for address in self.controllers.values())

    @property
    def session_timeout_ms(self) -> int:
        """After how long a silent broker loses its leaderships."""
        return int(self._properties.get("broker.session.timeout.ms", "9000"))

    def config_file(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.properties"

    def log_dir(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def controller_listens(self, node_id: int) -> bool:
        """Whether this node's controller listener takes connections: it is back in the quorum, or nearly."""
        try:
            with socket.create_connection((HOST, self._controller_ports[node_id]), timeout=0.5):
                return True
        except OSError:
            return False

    def serving(self) -> list[int]:
        """Ids of the nodes whose processes exist and are not paused."""
        return [node_id for node_id, node in self.nodes.items() if node.serving]

    def format(self) -> str:
        """Write the configurations and format every directory with one new cluster id, which is returned."""
        self.directory.mkdir(parents=True, exist_ok=True)
        cluster_id = run_cli("storage", "random-uuid").strip()
        for node_id in self.nodes:
            lines = [f"{key}={value}\n" for key, value in self._node_properties(node_id).items()]
            self.config_file(node_id).write_text("".join(lines), encoding="utf-8")
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            files = [str(self.config_file(node_id)) for node_id in self.nodes]
            list(pool.map(lambda file: run_cli("storage", "format", "-t", cluster_id, "-c", file), files))
        return cluster_id

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Start every node; the seconds until each of them lists all brokers."""
        for node in self.nodes.values():
            node.start()
        return self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Until every running broker lists all running brokers, and a real client sees them too."""
        probe = self.probe("readiness")
        expected = frozenset(self.serving())
        deadline = Deadline(timeout_s)

        def ready() -> bool:
            self._refuse_dead()
            views = [probe.topic(node_id, "__none") for node_id in sorted(expected)]
            return all(view is not None and view.brokers >= expected for view in views)

        try:
            return wait_until("all brokers listed by all brokers", ready, timeout_s) + wait_until(
                "all brokers listed to confluent-kafka",
                lambda: set(self._list_brokers()) >= expected,
                deadline.left_s(),
            )
        finally:
            probe.close()

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int = 3,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Create a topic through confluent-kafka and wait until every replica is in sync."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        futures = self.admin().create_topics([topic], operation_timeout=timeout_s, request_timeout=timeout_s)
        futures[name].result(timeout_s)
        self.wait_in_sync(name, timeout_s)

    def wait_in_sync(self, topic: str, timeout_s: float) -> float:
        """Until every node runs, is listed, and every partition has all of its replicas in sync."""
        probe = self.probe("in-sync")
        everyone = frozenset(self.nodes)

        def healed() -> bool:
            self._refuse_dead()
            views = [probe.topic(node_id, topic) for node_id in self.serving()]
            return len(views) == len(everyone) and all(
                view is not None and view.brokers >= everyone and view.fully_in_sync for view in views
            )

        try:
            return wait_until(f"all replicas of {topic} in sync", healed, timeout_s, interval_s=0.1)
        finally:
            probe.close()

    def probe(self, client_id: str) -> ClusterProbe:
        """A probe for the calling thread."""
        return ClusterProbe(self.addresses, client_id)

    def active_controller(self, probe: ClusterProbe, timeout_s: float = 5.0) -> int | None:
        """The active controller in the newest epoch any serving node knows; None if none knows in time."""
        deadline = Deadline(timeout_s)
        while not deadline.passed:
            views = [view for node_id in self.serving() if (view := probe.quorum(node_id)) is not None]
            if views:
                newest: QuorumView = max(views)
                return newest.leader
        return None

    def busiest_broker(self, probe: ClusterProbe, topic: str) -> int | None:
        """The serving broker that leads most partitions of the topic; the lowest id among equals."""
        for view in self.views(probe, topic):
            led = dict.fromkeys(self.serving(), 0)
            for partition in view.partitions.values():
                if partition.leader in led:
                    led[partition.leader] += 1
            if any(led.values()):
                return max(sorted(led), key=lambda node_id: led[node_id])
        return None

    def views(self, probe: ClusterProbe, topic: str) -> Iterator[TopicView]:
        """What each serving node knows of the topic, one after another."""
        for node_id in self.serving():
            view = probe.topic(node_id, topic)
            if view is not None:
                yield view

    def admin(self) -> AdminClient:
        """confluent-kafka's admin client for this cluster."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self._admin

    def heal(self) -> None:
        """Continue what is paused and start what is down."""
        for node in self.nodes.values():
            node.resume()
            if not node.running:
                node.start()

    def stop(self) -> list[int]:
        """Ask all nodes to stop, at once; ids of those that had to be killed or ended with a status."""
        for node in self.nodes.values():
            node.resume()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            clean = dict(zip(self.nodes, pool.map(NodeProcess.stop, self.nodes.values()), strict=True))
        return [node_id for node_id, was_clean in clean.items() if not was_clean]

    def kill_all(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def output_tails(self, max_bytes: int = 4096) -> str:
        """The ends of all nodes' outputs, for a failure report."""
        return "\n".join(f"--- {n.output_file}\n{n.output_tail(max_bytes)}" for n in self.nodes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()

    def unordered_exits(self) -> dict[int, str]:
        """The nodes that ended without being told to, each with its status and last words."""
        return {
            node_id: f"ended by itself with status {status}: {node.output_tail(600).strip()}"
            for node_id, node in self.nodes.items()
            if (status := node.unordered_exit) is not None
        }

    def _refuse_dead(self) -> None:
        for node_id, what in self.unordered_exits().items():
            raise WaitError(f"node {node_id} {what}")

    def _list_brokers(self) -> Sequence[int]:
        try:
            return list(self.admin().list_topics(timeout=2.0).brokers)
        except KafkaException:
            return []

    def _node_properties(self, node_id: int) -> dict[str, str]:
        voters = ",".join(f"{i}@{HOST}:{port}" for i, port in self._controller_ports.items())
        replicas = str(min(3, len(self.nodes)))
        defaults = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{self.addresses[node_id]},"
            f"CONTROLLER://{HOST}:{self._controller_ports[node_id]},"
            f"KAFKA_CONTROLLER://{self.controllers[node_id]}",
            "controller.listener.names": "CONTROLLER,KAFKA_CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "KAFKA_CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.log_dir(node_id)),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "offsets.topic.num.partitions": "6",
            "group.initial.rebalance.delay.ms": "0",
        }
        return defaults | self._properties


def cli(*arguments: str) -> list[str]:
    """The command line of one ``pykraft`` command, run with this interpreter."""
    return [sys.executable, "-m", "pykraft.node", *arguments]


def run_cli(*arguments: str) -> str:
    """Run one ``pykraft`` command as a process; what it printed. :class:`RuntimeError` if it failed."""
    result = subprocess.run(
        cli(*arguments), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()
        raise RuntimeError(
            f"`pykraft {' '.join(arguments)}` ended with status {result.returncode}:\n{output}"
        )
    return result.stdout
