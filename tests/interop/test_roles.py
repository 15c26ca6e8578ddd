"""Nodes with one role each, and each way to name the first voters: clients can use the cluster."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.faults.clusters.process_cluster import run_cli
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import cli
from pykraft.testing.processes.waits import PATIENCE_S, Deadline, wait_until
from tests.narrowing import present

pytestmark = pytest.mark.interop

HOST = "127.0.0.1"
CONTROLLER, BROKER = 100, 1


class Nodes:
    """Formatted nodes of a cluster of one controller and one broker, combined or separate."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.broker_port, self.controller_port = free_ports(2)
        self.cluster_id = run_cli("storage", "random-uuid").strip()
        self.processes: list[NodeProcess] = []

    def add(self, node_id: int, roles: str, properties: Mapping[str, str], *options: str) -> None:
        """Configure, format and start a node."""
        listeners = {
            "broker": f"PLAINTEXT://{HOST}:{self.broker_port}",
            "controller": f"CONTROLLER://{HOST}:{self.controller_port}",
        }
        values = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **properties,
        }
        file = self.directory / f"node-{node_id}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        run_cli("storage", "format", "-t", self.cluster_id, "-c", str(file), *options)
        process = NodeProcess(node_id, cli("server", "start", str(file)), self.directory / f"{node_id}.log")
        self._stack.callback(process.kill)
        process.start()
        self.processes.append(process)

    def wait_served(self) -> str:
        """The bootstrap server, once the broker answers."""
        bootstrap = f"{HOST}:{self.broker_port}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

        def served() -> bool:
            for process in self.processes:
                assert process.unordered_exit is None, process.output_tail()
            try:
                return len(admin.list_topics(timeout=1).brokers) == 1
            except KafkaException:
                return False

        wait_until("the broker answers", served, PATIENCE_S)
        return bootstrap


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        yield nodes
        # The broker stops first, while the controller can hand over its leaderships.
        for process in reversed(nodes.processes):
            assert process.stop(), process.output_tail()
            assert "Traceback" not in process.output_tail(1 << 20)


def check_client(bootstrap: str) -> None:
    """Create a topic, write to it and read it in a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)], operation_timeout=PATIENCE_S)["t"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(50):
        producer.produce("t", str(n))
    assert producer.flush(20) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["t"])
        values: set[int] = set()
        deadline = Deadline(PATIENCE_S)
        while len(values) < 50:
            assert not deadline.passed, f"{len(values)} records"
            values.update(int(present(message.value())) for message in consumer.consume(50, 0.1))
        assert values == set(range(50))
    finally:
        consumer.close()


def test_controller_and_broker_apart_with_voters_in_the_configuration(nodes: Nodes) -> None:
    voters = {"controller.quorum.voters": f"{CONTROLLER}@{HOST}:{nodes.controller_port}"}
    nodes.add(CONTROLLER, "controller", voters)
    nodes.add(BROKER, "broker", voters)
    check_client(nodes.wait_served())


def test_controller_and_broker_apart_with_initial_controllers(nodes: Nodes) -> None:
    directory_id = run_cli("storage", "random-uuid").strip()
    voters = f"{CONTROLLER}@{HOST}:{nodes.controller_port}:{directory_id}"
    nodes.add(CONTROLLER, "controller", {}, "--initial-controllers", voters)
    nodes.add(BROKER, "broker", {}, "--initial-controllers", voters)
    bootstrap = nodes.wait_served()
    check_client(bootstrap)
    quorum = run_cli("metadata-quorum", "--bootstrap-server", bootstrap, "describe", "--status")
    assert directory_id in quorum
    replicas = run_cli("metadata-quorum", "--bootstrap-server", bootstrap, "describe", "--replication")
    roles = {line.split()[0]: line.split()[-1] for line in replicas.splitlines()[1:]}
    assert roles == {str(CONTROLLER): "Leader", str(BROKER): "Observer"}


def test_combined_node_formatted_standalone(nodes: Nodes) -> None:
    nodes.add(BROKER, "broker,controller", {}, "--standalone")
    check_client(nodes.wait_served())


def test_broker_that_starts_before_its_controller_waits_for_it(nodes: Nodes) -> None:
    voters = {"controller.quorum.voters": f"{CONTROLLER}@{HOST}:{nodes.controller_port}"}
    nodes.add(BROKER, "broker", voters)
    nodes.add(CONTROLLER, "controller", voters)
    nodes.processes.reverse()
    check_client(nodes.wait_served())


def test_combined_node_that_finds_no_quorum_waits_for_it(nodes: Nodes) -> None:
    """If it ended, its controller would be missing when the other one starts."""
    (own_port,) = free_ports(1)
    voters = {
        "controller.quorum.voters": f"{BROKER}@{HOST}:{own_port},{CONTROLLER}@{HOST}:{nodes.controller_port}"
    }
    listeners = f"PLAINTEXT://{HOST}:{nodes.broker_port},CONTROLLER://{HOST}:{own_port}"
    waits = {"listeners": listeners, "initial.broker.registration.timeout.ms": "1000"}
    nodes.add(BROKER, "broker,controller", voters | waits)
    node = nodes.processes[0]

    def has_waited() -> bool:
        assert node.unordered_exit is None, node.output_tail()
        return "is not registered yet, and waits" in node.output_tail(1 << 20)

    wait_until("its time to register has passed", has_waited, PATIENCE_S)
    nodes.add(CONTROLLER, "controller", voters)
    nodes.processes.reverse()
    check_client(nodes.wait_served())


def test_copy_of_a_live_brokers_directory_does_not_take_its_place(nodes: Nodes, tmp_path: Path) -> None:
    """As on another machine: its own port, but the same ids and the same advertised address."""
    voters = {"controller.quorum.voters": f"{CONTROLLER}@{HOST}:{nodes.controller_port}"}
    nodes.add(CONTROLLER, "controller", voters)
    nodes.add(BROKER, "broker", voters | {"initial.broker.registration.timeout.ms": "3000"})
    bootstrap = nodes.wait_served()
    shutil.copytree(tmp_path / f"node-{BROKER}", tmp_path / "copy")
    (port,) = free_ports(1)
    overrides = {
        "log.dirs": tmp_path / "copy",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
    }
    options = [f"--override={name}={value}" for name, value in overrides.items()]
    command = cli("server", "start", str(tmp_path / f"node-{BROKER}.properties"), *options)
    copy = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert copy.returncode != 0
    assert "is registered by another process" in copy.stderr, copy.stderr[-2000:]
    assert "has been fenced" not in nodes.processes[1].output_tail(1 << 20)
    check_client(bootstrap)
