"""Apache Kafka out of jars: where they are found, and what is said where they are not."""

import shutil
import sys
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.jepsen_like.faults.runs.runner import run
from pykraft.testing.processes import kafka_jars, maven
from pykraft.testing.processes.kafka_jars import KAFKA_VERSION, NoKafkaError, find_clients, find_server
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import Kafka, Pykraft
from pykraft.testing.processes.waits import PATIENCE_S, wait_until


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """What is installed; the cache is empty."""
    installed = {"java", "mvn"}
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in installed else None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return installed


def test_jars_of_a_release_are_used_where_they_are(programs: set[str], tmp_path: Path) -> None:
    programs.remove("mvn")
    (tmp_path / f"kafka_2.13-{KAFKA_VERSION}.jar").touch()
    assert find_server(tmp_path) == find_clients(tmp_path) == tmp_path


def test_directory_without_the_server_is_refused(programs: set[str], tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-3.9.0.jar").touch()
    with pytest.raises(NoKafkaError, match=f"no kafka_2.13-{KAFKA_VERSION}.jar in {tmp_path}"):
        find_server(tmp_path)


def test_without_java_or_maven_it_is_said_what_is_missing(programs: set[str]) -> None:
    programs.remove("mvn")
    with pytest.raises(NoKafkaError, match=r"mvn is not installed\. Give its jars with --kafka-libs"):
        find_clients()
    programs.remove("java")
    with pytest.raises(NoKafkaError, match="java is not installed"):
        find_server()


def test_what_has_been_downloaded_is_not_downloaded_again(
    programs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads: list[tuple[tuple[str, ...], str]] = []

    def download(artifacts: tuple[str, ...], directory: Path, timeout_s: float, logging: str) -> None:
        downloads.append((artifacts, logging))
        directory.mkdir(parents=True)
        (directory / f"kafka_2.13-{KAFKA_VERSION}.jar").touch()

    monkeypatch.setattr(kafka_jars, "download", download)
    silent = {find_server() for _ in range(2)}
    assert silent.isdisjoint({find_server(logs=True)})
    assert [logging == maven.NO_LOGGING for _, logging in downloads] == [True, False]


@pytest.mark.parametrize("settings", [{"system": "kafka"}, {"client": "java", "bootstrap_servers": "h:1"}])
def test_run_without_java_could_not_be_carried_out(
    programs: set[str], tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.remove("java")
    monkeypatch.setattr(
        "pykraft.jepsen_like.faults.runs.foreign.ForeignCluster.connect", lambda cluster, say: None
    )
    with pytest.raises(RunError, match="java is not installed"):
        run(RunConfig(out_dir=tmp_path, **settings))  # type: ignore[arg-type]


def test_controllers_are_where_the_system_has_them(tmp_path: Path) -> None:
    kafka = ProcessCluster(tmp_path, 3, system=Kafka(tmp_path))
    assert kafka.controllers == {i: kafka.listeners[i].controller for i in (1, 2, 3)}
    own = ProcessCluster(tmp_path, 3, system=Pykraft())
    assert own.controllers == {i: own.listeners[i].kafka_controller for i in (1, 2, 3)}


@pytest.mark.parametrize(("system", "is_clean"), [(Kafka, True), (Pykraft, False)])
def test_jvm_has_stopped_well_with_the_status_of_its_signal(
    tmp_path: Path, system: type[Kafka] | type[Pykraft], is_clean: bool
) -> None:
    lines = (
        "import os, signal",
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(143))",
        "print('up', flush=True)",
        "signal.pause()",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    node = NodeProcess(1, command, tmp_path / "node.log", stop_status=system.stop_status)
    try:
        node.start()
        wait_until("the process is up", lambda: "up" in node.output_tail(), PATIENCE_S)
        assert node.stop() is is_clean
        assert node.unordered_exit == (None if is_clean else 143)
    finally:
        node.kill()


def test_kafka_has_one_listener_of_controllers(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path)
    listeners = ProcessCluster(tmp_path, 1, system=kafka).listeners[1]
    properties = kafka.listener_properties(listeners, "127.0.0.1:7")
    assert properties["listeners"] == f"PLAINTEXT://{listeners.broker},CONTROLLER://{listeners.controller}"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:7"
    assert properties["controller.listener.names"] == "CONTROLLER"
