"""The voters change while the cluster works: real processes, operated by the CLI, with a client."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import run_cli
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.commands import CommandError
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import cli
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.interop

HOST = "127.0.0.1"
BROKER = 1
STATUS = ("describe", "--status", "--json")


class Cluster:
    """Controllers with ids from 101 on, and one broker that finds them by their addresses."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.cluster_id = run_cli("storage", "random-uuid").strip()
        ports = free_ports(6)
        self.bootstrap = f"{HOST}:{ports[0]}"
        self.ports = {BROKER: ports[0]} | dict(enumerate(ports[1:], start=101))
        self.processes: dict[int, NodeProcess] = {}

    def configure(self, node_id: int, **properties: str) -> Path:
        role, name = ("broker", "PLAINTEXT") if node_id == BROKER else ("controller", "CONTROLLER")
        values = {
            "process.roles": role,
            "node.id": str(node_id),
            "listeners": f"{name}://{HOST}:{self.ports[node_id]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{port}" for id, port in self.ports.items() if id != BROKER
            ),
            "controller.quorum.election.timeout.ms": "300",
            "controller.quorum.fetch.timeout.ms": "600",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
        file = self.file_of(node_id)
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        return file

    def file_of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.properties"

    def add(self, node_id: int, *format_options: str, **properties: str) -> None:
        """Configure, format and start a node."""
        file = self.configure(node_id, **properties)
        run_cli("storage", "format", "-t", self.cluster_id, "-c", str(file), *format_options)
        process = NodeProcess(node_id, cli("server", "start", str(file)), self.directory / f"{node_id}.log")
        self._stack.callback(process.kill)
        process.start()
        self.processes[node_id] = process

    def replace_disk(self, node_id: int) -> None:
        """Kill it, empty its directory, format that again without voters, and start."""
        self.processes[node_id].kill()
        shutil.rmtree(self.directory / f"node-{node_id}")
        run_cli("storage", "format", "-t", self.cluster_id, "-c", str(self.file_of(node_id)), "-N")
        self.processes[node_id].start()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.quorum(*STATUS))
        return status

    def quorum(self, *arguments: str) -> str:
        return run_cli("metadata-quorum", "--bootstrap-server", self.bootstrap, *arguments)

    def features(self, *arguments: str) -> str:
        return run_cli("features", "--bootstrap-server", self.bootstrap, *arguments)

    def restart(self, node_id: int) -> None:
        process = self.processes[node_id]
        assert process.stop(), process.output_tail()
        process.start()

    def refused(self, *arguments: str, tool: str = "metadata-quorum") -> str:
        """The line that tells why a command was refused."""
        command = cli(tool, "--bootstrap-server", self.bootstrap, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def voters(self) -> dict[int, str]:
        """Directory ids by node id."""
        return {voter["id"]: voter["directoryId"] for voter in self.status()["currentVoters"]}

    def remove(self, node_id: int) -> None:
        directory_id = self.voters()[node_id]
        self.quorum(
            "remove-controller", "--controller-id", str(node_id), "--controller-directory-id", directory_id
        )

    def wait_served(self) -> None:
        def served() -> bool:
            for process in self.processes.values():
                assert process.unordered_exit is None, process.output_tail()
            try:
                return bool(self.status()["currentVoters"])
            except RuntimeError:
                return False

        wait_until("the quorum is described", served, PATIENCE_S)


class TopicCreator:
    """Creates topics one after the other until it is stopped; records those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.created: list[str] = []
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "TopicCreator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with AdminClient(self._bootstrap) as admin:
            while not self._stop.is_set():
                number += 1
                try:
                    (outcome,) = admin.create_topics([NewTopic(f"t-{number}", 1, 1)], timeout_ms=20_000)
                    outcome.check()
                except KafkaError:
                    continue  # it may exist or not: both are correct
                self.created.append(f"t-{number}")

    def wait_for_more(self, count: int = 3) -> None:
        wanted = len(self.created) + count
        wait_until("topics go on being created", lambda: len(self.created) >= wanted, PATIENCE_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        yield cluster
        for process in sorted(cluster.processes.values(), key=lambda process: process.node_id):
            assert process.stop(), process.output_tail()
            assert "Traceback" not in process.output_tail(1 << 20), process.output_tail(1 << 20)


def check_topics(cluster: Cluster, creator: TopicCreator) -> None:
    """Check that all acknowledged topics exist, once the broker knows the last one."""
    assert creator.created
    with AdminClient(cluster.bootstrap) as admin:

        def all_there() -> bool:
            return set(creator.created) <= {topic.name for topic in admin.list_topics()}

        wait_until("every acknowledged topic is listed", all_there, PATIENCE_S)


def test_voters_are_added_removed_and_replaced_under_a_client(cluster: Cluster) -> None:
    ids = [run_cli("storage", "random-uuid").strip() for _ in range(3)]
    initial = ",".join(
        f"{node_id}@{HOST}:{cluster.ports[node_id]}:{directory_id}"
        for node_id, directory_id in zip((101, 102, 103), ids, strict=True)
    )
    for node_id in (101, 102, 103):
        cluster.add(node_id, "--initial-controllers", initial)
    cluster.add(BROKER)
    cluster.wait_served()
    assert cluster.voters() == dict(zip((101, 102, 103), ids, strict=True))
    with TopicCreator(cluster.bootstrap) as creator:
        creator.wait_for_more()
        # A fourth one, formatted without voters, follows as an observer and is made a voter.
        cluster.add(104, "--no-initial-controllers")
        added = cluster.quorum("add-controller", "--config", str(cluster.file_of(104)))
        assert added.startswith("Added controller 104 with directory id")
        assert set(cluster.voters()) == {101, 102, 103, 104}
        assert "DUPLICATE_VOTER" in cluster.refused("add-controller", "-c", str(cluster.file_of(104)))
        creator.wait_for_more()

        leader = cluster.status()["leaderId"]
        cluster.remove(leader)
        wait_until("another leads", lambda: cluster.status()["leaderId"] not in (leader, -1), PATIENCE_S)
        assert leader not in cluster.voters()
        creator.wait_for_more()

        # A disk is replaced: the old directory is removed from the voters, the new one added.
        status = cluster.status()
        victim = next(v["id"] for v in status["currentVoters"] if v["id"] != status["leaderId"])
        before = cluster.voters()[victim]
        cluster.replace_disk(victim)
        new_voter = ("add-controller", "-c", str(cluster.file_of(victim)))
        assert "DUPLICATE_VOTER" in cluster.refused(*new_voter)
        cluster.remove(victim)
        cluster.quorum(*new_voter)
        assert cluster.voters()[victim] != before
        creator.wait_for_more()
    check_topics(cluster, creator)
    replication = cluster.quorum("describe", "--replication", "--human-readable")
    assert replication.splitlines()[0].split() == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp"),
        "Status",
    ]
    assert replication.count("Leader") == 1 and "ms ago" in replication


def test_quorum_grows_from_one_controller_to_three_that_join_automatically(cluster: Cluster) -> None:
    join = {"controller_quorum_auto_join_enable": "true"}
    cluster.add(101, "--standalone")
    cluster.add(BROKER)
    cluster.wait_served()
    with TopicCreator(cluster.bootstrap) as creator:
        creator.wait_for_more()
        features = run_cli("features", "--bootstrap-server", cluster.bootstrap, "describe")
        assert re.search(r"kraft\.version.*FinalizedVersionLevel: 1", features), features
        for node_id in (102, 103):
            cluster.add(node_id, "--no-initial-controllers", **join)
            wait_until(f"{node_id} has joined", lambda id=node_id: id in cluster.voters(), PATIENCE_S)  # type: ignore[misc]
        creator.wait_for_more()
        # A controller that joins automatically also replaces its own old disk.
        before = cluster.voters()[103]
        cluster.replace_disk(103)
        wait_until("103 has joined again", lambda: cluster.voters().get(103, before) != before, PATIENCE_S)
        # With three voters the first one can fail.
        cluster.processes[101].kill()
        creator.wait_for_more()
        cluster.processes[101].start()
        # A controller that returns at another address reports it to the leader.
        assert cluster.processes[102].stop()
        cluster.ports[102] = cluster.ports[104]
        cluster.configure(102, **join)
        cluster.processes[102].start()
        moved = f"CONTROLLER://{HOST}:{cluster.ports[102]}"
        wait_until("102 is known at its new address", lambda: moved in cluster.quorum(*STATUS), PATIENCE_S)
        creator.wait_for_more()
    check_topics(cluster, creator)


@pytest.mark.slow
def test_fixed_voters_become_voters_in_the_log_under_a_client(cluster: Cluster) -> None:
    """Their properties go on naming controller.quorum.voters, which has no effect any more."""
    first = (101, 102, 103)
    fixed = {
        "controller_quorum_voters": ",".join(f"{it}@{HOST}:{cluster.ports[it]}" for it in first),
        "controller_quorum_bootstrap_servers": "",
    }
    for node_id in (*first, BROKER):
        cluster.add(node_id, **fixed)
    cluster.wait_served()
    upgrade = ("upgrade", "--release-version", "4.3")
    with TopicCreator(cluster.bootstrap) as creator:
        creator.wait_for_more()
        assert re.search(r"kraft\.version.*FinalizedVersionLevel: 0", cluster.features("describe"))
        victim = next(it for it in first if it != cluster.status()["leaderId"])
        cluster.processes[victim].kill()

        def is_missed() -> bool:
            try:
                cluster.features(*upgrade, "--dry-run")
            except CommandError as error:
                return f"voter {victim} has not fetched" in str(error)
            return False

        wait_until(f"{victim} is missed", is_missed, PATIENCE_S)
        said = cluster.refused(*upgrade, tool="features")
        assert f"voter {victim} has not fetched" in said and "INVALID_UPDATE_VERSION" in said
        assert re.search(r"kraft\.version.*FinalizedVersionLevel: 0", cluster.features("describe"))
        cluster.processes[victim].start()
        wait_until(f"{victim} is back", lambda: _succeeds(cluster, *upgrade, "--dry-run"), PATIENCE_S)
        assert "kraft.version was upgraded to 1." in cluster.features(*upgrade)
        assert "kraft.version is at 1 already." in cluster.features(*upgrade)
        lowered = cluster.refused("downgrade", "--feature", "kraft.version=0", tool="features")
        assert "kraft.version cannot be lowered" in lowered
        voters = cluster.voters()
        assert set(voters) == set(first) and len(set(voters.values())) == 3
        creator.wait_for_more()
        for node_id in (*first, BROKER):
            cluster.restart(node_id)
            cluster.wait_served()
        creator.wait_for_more()
        assert cluster.voters() == voters
        for node_id in (101, BROKER):
            log = cluster.processes[node_id].output_tail(1 << 20)
            assert "controller.quorum.voters has no effect any more" in log

        cluster.add(104, "--no-initial-controllers")
        cluster.quorum("add-controller", "--config", str(cluster.file_of(104)))
        cluster.remove(101)
        assert set(cluster.voters()) == {102, 103, 104}
        assert cluster.processes[101].stop()
        for node_id in (102, BROKER):
            cluster.restart(node_id)
            cluster.wait_served()
        assert set(cluster.voters()) == {102, 103, 104}
        creator.wait_for_more()
    check_topics(cluster, creator)


def _succeeds(cluster: Cluster, *arguments: str) -> bool:
    try:
        cluster.features(*arguments)
    except CommandError:
        return False
    return True
