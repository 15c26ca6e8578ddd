"""``pykraft server start``: what it refuses, and how it starts and stops as a process."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykraft import __version__
from pykraft.compiled import form
from pykraft.runtime.free_ports import free_ports

pytestmark = pytest.mark.slow

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"

ServerFile = Callable[..., Path]
Pykraft = Callable[..., Any]


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def refusal(pykraft: Pykraft, *arguments: str) -> str:
    """The last line that a refused start prints. It exits with 1 and without a traceback."""
    result = pykraft("server", "start", *arguments)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    last: str = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    return last


def test_unformatted_directory_is_refused_with_the_command_to_run(
    pykraft: Pykraft, server_file: ServerFile, tmp_path: Path
) -> None:
    said = refusal(pykraft, str(server_file(controller_quorum_voters="1@127.0.0.1:9093")))
    assert str(tmp_path / "server-data") in said
    assert "pykraft storage format" in said and "pykraft storage random-uuid" in said


def test_directory_of_another_node_is_refused_with_the_command_to_run(
    pykraft: Pykraft, server_file: ServerFile
) -> None:
    file = str(server_file(controller_quorum_voters="1@127.0.0.1:9093"))
    assert pykraft("storage", "format", "-t", CLUSTER, "-c", file).returncode == 0
    foreign = str(server_file(node_id="7", controller_quorum_voters="7@127.0.0.1:9093"))
    said = refusal(pykraft, foreign)
    assert "belongs to node 1" in said and "pykraft storage info" in said


def test_directories_of_two_clusters_are_refused(
    pykraft: Pykraft, server_file: ServerFile, tmp_path: Path
) -> None:
    voters = "1@127.0.0.1:9093"
    for name, cluster in (("a", CLUSTER), ("b", OTHER_CLUSTER)):
        file = str(server_file(name, controller_quorum_voters=voters))
        assert pykraft("storage", "format", "-t", cluster, "-c", file).returncode == 0
    shutil.rmtree(tmp_path / "b-data" / "__cluster_metadata-0")
    both = server_file("c", controller_quorum_voters=voters, log_dirs=f"{tmp_path}/a-data,{tmp_path}/b-data")
    said = refusal(pykraft, str(both))
    assert CLUSTER in said and OTHER_CLUSTER in said and "pykraft storage info" in said


def test_mistakes_in_the_configuration_are_reported_in_one_line(
    pykraft: Pykraft, server_file: ServerFile, tmp_path: Path
) -> None:
    assert "cannot read" in refusal(pykraft, str(tmp_path / "missing.properties"))
    file = str(server_file(controller_quorum_voters="1@127.0.0.1:9093"))
    assert "log.dirs" in refusal(pykraft, file, "--override", "log.dir_s=/nowhere")
    assert pykraft("server", "start", file, "--override", "node.id").returncode == 1


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_listener_with_a_security_protocol_opens_no_socket(
    pykraft: Pykraft, server_file: ServerFile, port: int, protocol: str
) -> None:
    voters = f"1@127.0.0.1:{port}"
    assert (
        pykraft(
            "storage", "format", "-t", CLUSTER, "-c", str(server_file(controller_quorum_voters=voters))
        ).returncode
        == 0
    )
    listeners = f"{protocol}://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"
    said = refusal(pykraft, str(server_file(controller_quorum_voters=voters, listeners=listeners)))
    assert f"listener {protocol}: security protocol {protocol} is not served" in said
    keys = server_file(controller_quorum_voters=voters, ssl_keystore_location="/k.jks", super_users="User:a")
    assert "ssl.keystore.location, super.users: security is not implemented" in refusal(pykraft, str(keys))


def test_unavailable_address_is_not_reported_as_in_use(
    pykraft: Pykraft, server_file: ServerFile, port: int
) -> None:
    """192.0.2.1 is reserved for documentation: no machine has this address."""
    voters = {"controller_quorum_voters": f"1@127.0.0.1:{port}"}
    assert pykraft("storage", "format", "-t", CLUSTER, "-c", str(server_file(**voters))).returncode == 0
    broker, controller = f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{port}"
    for wrong, listeners in (
        ("PLAINTEXT://192.0.2.1:9092", f"PLAINTEXT://192.0.2.1:9092,{controller}"),
        ("CONTROLLER://192.0.2.1:9093", f"{broker},CONTROLLER://192.0.2.1:9093"),
    ):
        said = refusal(pykraft, str(server_file(listeners=listeners, **voters)))
        assert f"cannot listen on {wrong}: " in said
        assert "assign requested address" in said and "taken" not in said


def test_unknown_log_level_is_refused(
    pykraft: Pykraft, server_file: ServerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKRAFT_LOG_LEVEL", "bogus")
    said = refusal(pykraft, str(server_file(controller_quorum_voters="1@127.0.0.1:9093")))
    assert said.startswith("Error: PYKRAFT_LOG_LEVEL: BOGUS is not a level; these are DEBUG, INFO")


def test_port_in_use_is_named(pykraft: Pykraft, server_file: ServerFile, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        file = str(
            server_file(
                controller_quorum_voters=f"1@127.0.0.1:{port}",
                listeners=f"PLAINTEXT://127.0.0.1:{busy},CONTROLLER://127.0.0.1:{port}",
            )
        )
        assert pykraft("storage", "format", "-t", CLUSTER, "-c", file).returncode == 0
        assert str(busy) in refusal(pykraft, file)


@pytest.mark.usefixtures("terminal_can_hang_up")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_started_node_stops_cleanly_when_asked_and_starts_again(
    pykraft: Pykraft, start_pykraft: Pykraft, server_file: ServerFile, port: int, number: signal.Signals
) -> None:
    file = str(
        server_file(
            controller_quorum_voters=f"1@127.0.0.1:{port}",
            listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        )
    )
    assert pykraft("storage", "format", "-t", CLUSTER, "-c", file).returncode == 0
    for _ in range(2):
        with start_pykraft("server", "start", file) as running:
            started = running.wait_for("pykraft ")
            assert (
                f"pykraft {__version__} ({form()}): node 1 (broker, controller) of cluster {CLUSTER}"
                in started
            )
            at = running.wait_for("node 1 is up at ")
            assert re.search(rf"PLAINTEXT://127.0.0.1:[1-9]\d*, CONTROLLER://127.0.0.1:{port} ", at)
            assert running.stop(number) == 0, running.printed
            assert "Traceback" not in running.printed
            assert " ERROR " not in running.printed


def test_server_command_imports_no_client_of_a_cluster() -> None:
    """Every imported module costs a millisecond at each start."""
    code = "import sys, pykraft.node.cli.server; print(*sys.modules, sep='\\n')"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    ours = tuple(f"pykraft.{name}" for name in ("kafka_client", "spark", "jepsen_like", "testing"))
    needless = (*ours, "pykraft.runtime.simulated", "confluent_kafka", "rich")
    assert "pykraft.node.run" in imported.splitlines()
    assert [name for name in imported.splitlines() if name.startswith(needless)] == []


def test_module_is_the_command() -> None:
    as_module = subprocess.run(
        [sys.executable, "-m", "pykraft", "--version"], capture_output=True, text=True, check=True
    )
    assert as_module.stdout == f"pykraft, version {__version__} ({form()})\n"
