"""``pykraft dev``: a ready cluster in one command, removed with Ctrl-C unless its data is to be kept."""

import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykraft.runtime.directory_lock import DirectoryInUseError, DirectoryLock
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.waits import wait_until
from tests.node.conftest import Background
from tests.node.ipv6 import needs_ipv6

pytestmark = pytest.mark.slow

Pykraft = Callable[..., Any]


def bootstrap_servers(running: Background) -> str:
    servers: str = running.wait_for("Bootstrap servers:").split(": ")[1]
    return servers


def process_ids(running: Background, nodes: int) -> list[int]:
    """The process ids of nodes that each have a process."""
    return [int(running.wait_for(f"Node {n}: ").rpartition(" ")[2]) for n in range(1, nodes + 1)]


def no_process_holds(directory: Path) -> bool:
    """Whether every process that used a node's directory has ended."""
    try:
        for path in directory.glob("node-*/"):
            DirectoryLock(str(path)).release()
    except DirectoryInUseError:
        return False
    return True


@pytest.mark.usefixtures("terminal_can_hang_up")
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ()),
        (signal.SIGHUP, ()),
        (signal.SIGINT, ("--nodes", "3")),
        (signal.SIGHUP, ("--nodes", "3")),
        (signal.SIGINT, ("--nodes", "3", "--one-process")),
    ],
)
def test_signal_stops_the_cluster_cleanly_and_removes_its_directory(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path, options: tuple[str, ...], number: signal.Signals
) -> None:
    nodes = int(options[1]) if options else 1
    with start_pykraft("dev", "--port", "0", *options, TMPDIR=str(tmp_path)) as running:
        bootstrap = bootstrap_servers(running)
        assert len(bootstrap.split(",")) == nodes
        controllers = running.wait_for("Bootstrap controllers:").split(": ")[1].split(",")
        assert len({*controllers, *bootstrap.split(",")}) == 2 * nodes
        directory = Path(running.wait_for("Data: ").removeprefix("Data: ").split(". ")[0])
        assert directory.parent == tmp_path and len(list(directory.glob("node-*/"))) == nodes
        created = pykraft("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "t")
        assert created.returncode == 0, created.stderr
        described = pykraft("topics", "--bootstrap-server", bootstrap, "--describe", "--topic", "t").stdout
        assert f"ReplicationFactor: {nodes}" in described
        assert running.stop(number) == 0, running.printed
        assert "Traceback" not in running.printed
        assert " ERROR " not in running.printed
    assert list(tmp_path.iterdir()) == []


@needs_ipv6
def test_cluster_at_an_ipv6_address_serves_clients_and_its_console(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    options = ("--host", "::1", "--port", "0", "--nodes", "2", "--topics", "t:1:2")
    with start_pykraft("dev", *options, TMPDIR=str(tmp_path)) as running:
        assert "[::1]:" in running.wait_for("Node 2: ")
        bootstrap = bootstrap_servers(running)
        assert bootstrap.count("[::1]:") == 2
        consoles = running.wait_for("Console: ").removeprefix("Console: ").split()
        sent = pykraft("producer", "--bootstrap-server", bootstrap, "--topic", "t", stdin="one\n")
        assert sent.returncode == 0, sent.stderr
        for console in consoles[:2]:
            with urllib.request.urlopen(console) as page:
                assert page.status == 200
        assert running.stop() == 0, running.printed


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_two_signals_in_a_row_leave_no_directory_and_no_process(
    start_pykraft: Pykraft, tmp_path: Path, nodes: str
) -> None:
    with start_pykraft("dev", "--port", "0", "--nodes", nodes, TMPDIR=str(tmp_path)) as running:
        bootstrap = bootstrap_servers(running)
        running.process.send_signal(signal.SIGTERM)
        assert running.stop() in (0, 1), running.printed
    assert list(tmp_path.iterdir()) == []
    for address in bootstrap.split(","):
        with socket.socket() as probe:
            host, _, port = address.rpartition(":")
            assert probe.connect_ex((host, int(port))) != 0


def test_every_node_has_a_process_and_the_others_survive_one(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    fast = ("--override", "broker.session.timeout.ms=1000", "--override", "broker.heartbeat.interval.ms=200")
    with start_pykraft("dev", "--port", "0", "--nodes", "3", *fast, TMPDIR=str(tmp_path)) as running:
        bootstrap = bootstrap_servers(running)
        ids = process_ids(running, 3)
        assert len({running.process.pid, *ids}) == 4
        os.kill(ids[1], signal.SIGKILL)
        running.wait_for("Node 2 ended (killed by SIGKILL); the others continue")
        sent = pykraft("producer", "--bootstrap-server", bootstrap, "--topic", "t", stdin="one\n")
        assert sent.returncode == 0, sent.stderr
        # A terminal's Ctrl-C goes to the whole process group.
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.process.wait(30) == 1
    assert list(tmp_path.iterdir()) == []


def test_killed_node_can_be_started_again_from_its_properties(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    with start_pykraft("dev", "--port", "0", "--nodes", "3", "--data-dir", str(tmp_path)) as running:
        bootstrap_servers(running)
        os.kill(process_ids(running, 3)[2], signal.SIGKILL)
        running.wait_for("Node 3 ended")
        with start_pykraft("server", "start", str(tmp_path / "node-3.properties")) as again:
            again.wait_for("node 3 is up")
            assert again.stop() == 0, again.printed
        assert running.stop() == 1, running.printed


def test_nodes_end_with_a_parent_that_is_killed(start_pykraft: Pykraft, tmp_path: Path) -> None:
    with start_pykraft("dev", "--port", "0", "--nodes", "3", "--data-dir", str(tmp_path)) as running:
        bootstrap_servers(running)
        assert not no_process_holds(tmp_path)
        running.kill()
        wait_until("the nodes have ended", lambda: no_process_holds(tmp_path), 30)


def test_node_that_cannot_start_is_named_and_stops_all(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        port = bind_above_a_free_port(taken)
        result = pykraft("dev", "--port", str(port - 1), "--nodes", "2", "--data-dir", str(tmp_path))
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    refusals = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(refusals) == 1 and "node 2 does not start" in refusals[0] and str(port) in refusals[0]
    assert (
        result.stderr.splitlines()[-1] == "Node 2 ended (exit code 1) before all nodes had started: stopping"
    )
    assert no_process_holds(tmp_path)


def bind_above_a_free_port(taken: socket.socket) -> int:
    """Bind a port whose lower neighbour is free; returns the port."""
    for port in free_ports(20):
        with socket.socket() as below:
            try:
                below.bind(("127.0.0.1", port - 1))
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            taken.listen()
            return port
    raise AssertionError("no two free ports in a row")


def test_data_in_a_given_directory_survives_a_restart(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for attempt in range(2):
        with start_pykraft("dev", "--port", "0", "--data-dir", str(data)) as running:
            bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
            if attempt == 0:
                sent = pykraft(
                    "producer", "--bootstrap-server", bootstrap, "--topic", "kept", stdin="one\ntwo\n"
                )
                assert sent.returncode == 0, sent.stderr
            read = pykraft(
                *("consumer", "--bootstrap-server", bootstrap, "--topic", "kept", "--partition", "0"),
                *("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
            )
            assert read.stdout == "one\ntwo\n", read.stderr
            assert running.stop() == 0, running.printed
    assert (data / "node-1" / "meta.properties").exists()


def test_data_of_a_cluster_of_another_size_is_refused_and_left_unchanged(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    dev = ("dev", "--port", "0", "--data-dir", str(data))
    with start_pykraft(*dev) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        created = pykraft("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "kept")
        assert created.returncode == 0, created.stderr
        assert running.stop() == 0, running.printed
    before = {str(path): path.stat().st_size for path in data.rglob("*") if path.is_file()}
    refused = pykraft(*dev, "--nodes", "3")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: {data} holds a cluster of 1 node (node-1), not of 3 nodes:"
        " give --nodes 1, or another --data-dir\n"
    )
    assert {str(path): path.stat().st_size for path in data.rglob("*") if path.is_file()} == before
    with start_pykraft(*dev) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        assert pykraft("topics", "--bootstrap-server", bootstrap, "--list").stdout == "kept\n"
        assert running.stop() == 0, running.printed


def test_overrides_reach_every_node(pykraft: Pykraft, start_pykraft: Pykraft) -> None:
    with start_pykraft("dev", "--port", "0", "--override", "auto.create.topics.enable=false") as running:
        bootstrap = bootstrap_servers(running)
        refused = pykraft(
            *("producer", "--bootstrap-server", bootstrap, "--topic", "missing"),
            *("--producer-property", "topic.metadata.propagation.max.ms=200"),
            stdin="x\n",
        )
        assert refused.returncode == 1
        assert "Unknown topic or partition" in refused.stderr
        assert running.stop() == 0, running.printed


def test_mistakes_are_reported_in_one_line(pykraft: Pykraft, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = pykraft("dev", "--port", "0", "--data-dir", str(tmp_path / "file"))
    assert refused.returncode == 1
    path = tmp_path / "file" / "node-1" / "meta.properties"
    assert refused.stderr == f"Error: cannot read {path}: Not a directory\n"
    refused = pykraft("dev", "--port", "0", "--override", "no.such.key=1")
    assert refused.returncode == 1
    assert "no.such.key" in refused.stderr.splitlines()[-1]
    assert pykraft("dev", "--nodes", "0").returncode == 2


def test_lost_quorum_is_reported_within_seconds(
    pykraft: Pykraft, start_pykraft: Pykraft, tmp_path: Path
) -> None:
    with start_pykraft("dev", "--nodes", "3", "--port", "0", TMPDIR=str(tmp_path)) as running:
        first = bootstrap_servers(running).split(",")[0]
        for id in process_ids(running, 3)[1:]:
            os.kill(id, signal.SIGKILL)
        refused = pykraft("topics", "--bootstrap-server", first, "--create", "--topic", "t")
        assert refused.returncode == 1
        assert "no active controller" in refused.stderr
        assert "is a majority of the controllers running?" in refused.stderr
        said = running.wait_for("the metadata quorum has had no leader for")
        assert "node-1" in said and "1 at 127.0.0.1:" in said and "3 at 127.0.0.1:" in said
        running.process.send_signal(signal.SIGTERM)  # a second signal does not wait for the hand-over
        assert running.stop() == 1
