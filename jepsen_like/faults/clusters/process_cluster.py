"""A cluster of real node processes: formatted with the real commands, started, probed, stopped.

Every node is combined (broker and controller), keeps its data in a directory of its own and prints to a
file. Decides how a test cluster is configured and when it is ready or healed; what to break and when is the
nemesis's business, and with what it can be broken that of the surroundings.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.faults.clusters.other_version import OtherVersion
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings
from pykraft.kafka_client.cluster_probe import ClusterProbe, QuorumView, TopicView
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.node.incarnation import draw_uuid
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.commands import run_command
from pykraft.testing.processes.formatted import write_properties
from pykraft.testing.processes.keeper import Keeper
from pykraft.testing.processes.listeners import LOOPBACK, Listeners
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import Pykraft, System, cli
from pykraft.testing.processes.waits import POLL_INTERVAL_S, Deadline, WaitError, wait_until

HOST = LOOPBACK

# A dead broker is noticed sooner than with Kafka's defaults (9 s, 30 s): a short run holds many failovers.
FAST_FAILOVER: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
}


class ProcessCluster:
    """``nodes`` combined nodes with ids from 1. Use as a context manager: leaving ends every process."""

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        surroundings: Surroundings | None = None,
        system: System | None = None,
        spares: int = 0,
        dynamic_voters: bool = False,
        other_version: OtherVersion | None = None,
    ) -> None:
        """``spares``: nodes with the next ids that are prepared, and join later if at all.

        ``dynamic_voters``: the voters are in the metadata log and can be changed (KIP-853), not in
        ``controller.quorum.voters``. ``other_version``: what a nemesis may start nodes with.
        """
        self.directory = directory
        self.surroundings = surroundings or Surroundings()
        self.system = system or Pykraft()
        self._properties = dict(properties or {})
        self._admin: AdminClient | None = None
        self._keeper: Keeper | None = None
        ids = range(1, nodes + spares + 1)
        ports = free_ports(3 * len(ids))
        self.listeners = {
            i: Listeners(*(Address(self.surroundings.host(i), port) for port in ports[3 * i - 3 : 3 * i]))
            for i in ids
        }
        self.voters: tuple[int, ...] = tuple(ids[:nodes])
        self.members: list[int] = list(ids[:nodes])
        """Ids of the nodes that belong to the cluster; the others of :attr:`nodes` are spares."""
        self.dynamic_voters = dynamic_voters
        self.other_version = other_version
        self.cluster_id = ""
        self.ended = False
        """Whether :meth:`kill_all` was called: nothing is started again."""
        self._joining = threading.Lock()
        self._initial_controllers = ",".join(
            f"{i}@{self.listeners[i].controller}:{uuid_to_str(draw_uuid(os.urandom))}" for i in self.voters
        )
        self.nodes = {
            i: NodeProcess(
                i,
                (),
                directory / f"node-{i}.log",
                started=self._watch,
                stop_status=self.system.stop_status,
                stop_timeout_s=self.system.stop_timeout_s,
            )
            for i in ids
        }

    @property
    def addresses(self) -> dict[int, Address]:
        """Where the brokers listen, whatever happens to the links of clients."""
        return {i: self.listeners[i].broker for i in self.members}

    @property
    def controllers(self) -> dict[int, Address]:
        """Where each controller answers Kafka's protocol."""
        return {i: self.system.kafka_controller(self.listeners[i]) for i in self.members}

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the brokers."""
        return ",".join(str(self._advertised(i)) for i in self.members)

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
        return self.surroundings.data_directory(self.directory, node_id)

    def serving(self) -> list[int]:
        """Ids of the members whose processes exist and are not paused."""
        return [node_id for node_id in self.members if self.nodes[node_id].serving]

    def format(self) -> str:
        """Write the configurations and format every directory with one new cluster id, which is returned."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.surroundings.open(self.directory, self.listeners)
        self.cluster_id = uuid_to_str(draw_uuid(os.urandom))
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(self.format_node, self.members))
        return self.cluster_id

    def format_node(self, node_id: int) -> None:
        """Write its configuration, make its command and format its directory for this cluster.
        :class:`~pykraft.testing.processes.commands.CommandError` if that fails."""
        file, node = self.config_file(node_id), self.nodes[node_id]
        write_properties(file, self._node_properties(node_id))
        prefix = self.surroundings.prefix(node_id)
        node.command = (*prefix, *self.system.start_command(file))
        node.environment = dict(self.surroundings.environment(node_id))
        voters = self._voter_options(node_id)
        run_command(*prefix, *self.system.format_command(file, self.cluster_id, *voters))

    def start(self, timeout_s: float | None = None) -> float:
        """Start every node; the seconds until each of them lists all brokers."""
        for node_id in self.members:
            self.nodes[node_id].start()
        return self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float | None = None) -> float:
        """Wait until all running brokers list each other, and a client agrees. None: the system's limit."""
        probe = self.probe("readiness")
        expected = frozenset(self.serving())
        timeout_s = timeout_s or self.system.start_timeout_s
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
        everyone = frozenset(self.members)

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
        """A probe for the calling thread. It can ask spares, too."""
        probed = self.surroundings.probed
        return ClusterProbe({i: probed(i, self.listeners[i].broker) for i in self.nodes}, client_id)

    def active_controller(self, probe: ClusterProbe, timeout_s: float = 5.0) -> int | None:
        """The active controller in the newest epoch any serving node knows; None if none knows in time."""
        deadline = Deadline(timeout_s)
        while not deadline.passed:
            views = [view for node_id in self.serving() if (view := probe.quorum(node_id)) is not None]
            if views:
                newest: QuorumView = max(views)
                return newest.leader
            time.sleep(POLL_INTERVAL_S)
        return None

    def busiest_broker(self, probe: ClusterProbe, topic: str) -> int | None:
        """The serving broker that leads most partitions of the topic; the lowest id among equals."""
        newest: dict[int, tuple[int, int]] = {}
        for view in self.views(probe, topic):
            for number, seen in view.partitions.items():
                newest[number] = max(newest.get(number, (-1, -1)), (seen.leader_epoch, seen.leader))
        led = dict.fromkeys(self.serving(), 0)
        for _, leader in newest.values():
            if leader in led:
                led[leader] += 1
        return max(sorted(led), key=lambda node_id: led[node_id]) if any(led.values()) else None

    def views(self, probe: ClusterProbe, topic: str) -> Iterator[TopicView]:
        """Yield each serving node's view of the topic."""
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
        for node_id in self.members:
            self.nodes[node_id].resume()
        self.ensure_running(self.members)

    def ensure_running(self, node_ids: Iterable[int]) -> None:
        """Start those of them that belong to the cluster and do not run."""
        for node_id in node_ids:
            with self._joining:
                if node_id in self.members and not self.ended:
                    self.nodes[node_id].ensure_running()

    def join(self, node_id: int) -> None:
        """From now on the node belongs to the cluster: it may be started, and faults may hit it."""
        with self._joining:
            self.members = sorted({*self.members, node_id})

    def leave(self, node_id: int) -> None:
        """From now on the node does not belong to the cluster: it is not started again."""
        with self._joining:
            self.members = [member for member in self.members if member != node_id]

    def wait_back(self, node_id: int, timeout_s: float | None = None) -> None:
        """Until the node lists itself among the brokers: it serves clients again."""
        probe = self.probe("back")

        def is_back() -> bool:
            if not self.nodes[node_id].running:
                raise WaitError(f"node {node_id} has ended")
            view = probe.topic(node_id, "__none")
            return view is not None and node_id in view.brokers

        try:
            wait_until(f"node {node_id} is back", is_back, timeout_s or self.system.start_timeout_s)
        finally:
            probe.close()

    def stop(self) -> list[int]:
        """Ask all nodes to stop, at once; ids of those that had to be killed or ended with a status."""
        for node in self.nodes.values():
            node.resume()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            clean = dict(zip(self.nodes, pool.map(NodeProcess.stop, self.nodes.values()), strict=True))
        return [node_id for node_id, was_clean in clean.items() if not was_clean]

    def kill_all(self) -> None:
        with self._joining:
            self.ended = True
        for disk in self.surroundings.disks.values():
            disk.thaw()  # who waits for a frozen disk does not die
        for node in self.nodes.values():
            node.kill()

    def output_tails(self, max_bytes: int = 4096) -> str:
        """The ends of all nodes' outputs, for a failure report."""
        return "\n".join(f"--- {n.output_file}\n{n.output_tail(max_bytes)}" for n in self.nodes.values())

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._keeper = Keeper(self.directory)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as ending:  # an error of one does not keep the others from being ended
            if self._keeper is not None:
                ending.callback(self._keeper.close)
            ending.callback(self.surroundings.close)
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

    def _watch(self, pid: int) -> None:
        if self._keeper is not None:
            self._keeper.watch(pid)

    def _advertised(self, node_id: int) -> Address:
        return self.surroundings.advertised(node_id, self.listeners[node_id].broker)

    def _quorum_properties(self) -> dict[str, str]:
        controllers = {i: str(self.listeners[i].controller) for i in self.voters}
        if self.dynamic_voters:
            return {"controller.quorum.bootstrap.servers": ",".join(controllers.values())}
        return {"controller.quorum.voters": ",".join(f"{i}@{at}" for i, at in controllers.items())}

    def _voter_options(self, node_id: int) -> list[str]:
        if not self.dynamic_voters:
            return []
        if node_id in self.voters:
            return ["--initial-controllers", self._initial_controllers]
        return ["--no-initial-controllers"]

    def _node_properties(self, node_id: int) -> dict[str, str]:
        replicas = str(min(3, len(self.voters)))
        defaults = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            **self._quorum_properties(),
            **self.system.listener_properties(self.listeners[node_id], str(self._advertised(node_id))),
            "log.dirs": str(self.log_dir(node_id)),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "offsets.topic.num.partitions": "6",
            "group.initial.rebalance.delay.ms": "0",
            **self.system.properties,
        }
        return defaults | self._properties


def run_cli(*arguments: str) -> str:
    """Run one ``pykraft`` command as a process; what it printed. :class:`CommandError` if it failed."""
    return run_command(*cli(*arguments))
