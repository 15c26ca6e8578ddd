"""The image and the three nodes of ``packaging/``, as far as they can be tried without a container engine.

The wheel is built from what the image is built from, and its nodes get the environment of ``compose.yaml``.
Names of hosts and ports are replaced: here all of them are on this machine.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pykraft.configuration.server_keys import KNOWN_NAMES
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGING: Final = ROOT / "packaging"
HOST: Final = "127.0.0.1"

Environment = Mapping[str, str]


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (PACKAGING / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.fixture(scope="module")
def script() -> Mapping[str, Any]:
    """What ``container.py`` defines; its directory is no package, and has the name of another one."""
    return runpy.run_path(str(PACKAGING / "container.py"))


@pytest.fixture(scope="module")
def services() -> Mapping[str, Any]:
    described = yaml.safe_load((PACKAGING / "compose.yaml").read_text(encoding="utf-8"))
    found: Mapping[str, Any] = described["services"]
    return found


def test_variables_are_properties_as_in_kafkas_image(script: Mapping[str, Any]) -> None:
    given, _ = script["node_of"](
        {
            "KAFKA_LOG_RETENTION_MS": "1",
            "KAFKA_A__B___C_D": "x",
            "PATH": "/bin",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "KAFKA_JMX_PORT": "1",
            "KAFKA_LOG4J_LOGGERS": "x",
        }
    )
    assert given["log.retention.ms"] == "1" and given["a_b-c.d"] == "x"
    assert not {"path", "heap.opts", "jmx.port", "log4j.loggers"} & given.keys()


@pytest.mark.parametrize(
    ("environment", "option", "is_alone"),
    [
        ({}, ["--standalone"], True),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@node1:9093"}, [], False),
        ({"KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "node1:9093"}, ["--no-initial-controllers"], False),
        ({"KAFKA_PROCESS_ROLES": "broker"}, [], False),
    ],
)
def test_node_is_alone_unless_it_is_told_of_others(
    script: Mapping[str, Any], environment: Environment, option: list[str], is_alone: bool
) -> None:
    properties, told = script["node_of"](environment)
    assert list(told) == option
    assert ("offsets.topic.replication.factor" in properties) == is_alone


def test_dockerfile_copies_what_is_there_and_runs_without_root(
    dockerfile: str, script: Mapping[str, Any]
) -> None:
    copied = re.findall(r"^COPY (.*) \S+$", dockerfile, re.M)
    assert all((ROOT / path).exists() for paths in copied for path in paths.split())
    *_, image = dockerfile.split("\nFROM ")
    assert re.search(r"^USER pykraft$", image, re.M)
    for name in re.findall(r"/usr/local/lib/pykraft/(\w+\.py)", image):
        assert (PACKAGING / name).exists()
    assert re.findall(r"^VOLUME (.*)$", image, re.M) == [script["DATA"]]


def test_every_service_publishes_what_it_tells_clients(
    services: Mapping[str, Any], script: Mapping[str, Any]
) -> None:
    ids = set()
    for name, service in services.items():
        properties, _ = script["node_of"](service["environment"])
        assert properties.keys() <= KNOWN_NAMES
        told = dict(entry.split("://") for entry in properties["advertised.listeners"].split(","))
        (published,) = service["ports"]
        assert published.rpartition(":")[0] == told["OUTSIDE"] and told["INSIDE"].startswith(f"{name}:")
        assert service["volumes"] == [f"{name}:{properties['log.dirs']}"]
        ids.add(properties["node.id"])
    assert len(ids) == len(services) == 3


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files that get into the image's build, in a directory of its own."""
    source, wheels, target = (tmp_path_factory.mktemp("image") / name for name in ("source", "wheels", "lib"))
    lines = (PACKAGING / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    left_out = [line.removeprefix("**/") for line in lines if line and not line.startswith("#")]
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*left_out))
    # Otherwise pip would fetch what builds a wheel, which is installed here.
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYKRAFT_INTERPRETED": "1"}
    subprocess.run(build, check=True, timeout=PATIENCE_S, env=environment)
    (wheel,) = wheels.glob("pykraft-*.whl")
    subprocess.run((*pip, "install", "--no-deps", "--target", str(target), str(wheel)), check=True)
    return target


def run_as_in_image(installed: Path) -> dict[str, str]:
    path = f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PYTHONPATH": str(installed), "PATH": path}


def on_this_machine(
    service: Mapping[str, Any], ports: Mapping[str, dict[str, int]], name: str
) -> Environment:
    """The environment of a service with addresses of this machine in it."""
    own = ports[name]
    environment = dict(service["environment"])
    listeners = {"INSIDE://": own["inside"], "OUTSIDE://": own["outside"], "CONTROLLER://": own["controller"]}
    for listener, port in listeners.items():
        environment["KAFKA_LISTENERS"] = re.sub(
            rf"\b{listener}:\d+", f"{listener}{HOST}:{port}", environment["KAFKA_LISTENERS"]
        )
    environment["KAFKA_ADVERTISED_LISTENERS"] = (
        f"INSIDE://{HOST}:{own['inside']},OUTSIDE://{HOST}:{own['outside']}"
    )
    for other, its in ports.items():
        voters = environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]
        environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] = voters.replace(
            f"{other}:9093", f"{HOST}:{its['controller']}"
        )
    return environment | {"KAFKA_PYKRAFT_HTTP_LISTENER": f"{HOST}:{own['http']}"}


@pytest.fixture
def nodes(
    services: Mapping[str, Any], installed: Path, tmp_path: Path
) -> Iterator[Mapping[str, NodeProcess]]:
    """The services, each a process with a directory for what is in its image and its volume."""
    drawn = iter(free_ports(4 * len(services)))
    kinds = ("inside", "outside", "controller", "http")
    ports = {name: {kind: next(drawn) for kind in kinds} for name in services}
    made = {}
    with ExitStack() as ending:
        for number, (name, service) in enumerate(services.items(), 1):
            directory = tmp_path / name
            directory.mkdir()
            environment = {
                **run_as_in_image(installed),
                **on_this_machine(service, ports, name),
                "KAFKA_LOG_DIRS": str(directory / "data"),
                "PYKRAFT_CONTAINER_DIRECTORY": str(directory),
            }
            command = (sys.executable, str(PACKAGING / "container.py"))
            made[name] = NodeProcess(number, command, directory / "output", environment)
            ending.callback(made[name].kill)
        yield made


def is_healthy(node: NodeProcess) -> bool:
    command = (sys.executable, str(PACKAGING / "healthcheck.py"))
    checked = subprocess.run(command, env=os.environ | node.environment, capture_output=True, check=False)
    return checked.returncode == 0


def bootstrap_server(node: NodeProcess) -> str:
    return node.environment["KAFKA_ADVERTISED_LISTENERS"].partition("OUTSIDE://")[2]


@pytest.mark.parametrize(
    ("asked_at", "listener"),
    [("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "[::]"), ("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")],
)
def test_health_check_asks_at_an_address_of_the_listener(asked_at: str, listener: str) -> None:
    with ThreadingHTTPServer((asked_at, 0), _Ready) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            address = f"{listener}:{server.server_port}"
            command = (sys.executable, str(PACKAGING / "healthcheck.py"))
            environment = os.environ | {"KAFKA_PYKRAFT_HTTP_LISTENER": address}
            checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert (checked.returncode, checked.stdout) == (0, "ready\n"), checked.stderr
        finally:
            server.shutdown()
            serving.join()


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ready\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_services_of_compose_are_a_healthy_cluster(nodes: Mapping[str, NodeProcess]) -> None:
    assert not any(map(is_healthy, nodes.values()))
    for node in nodes.values():
        node.start()
    for name, node in nodes.items():
        wait_until(f"{name} is healthy", lambda node=node: is_healthy(node), PATIENCE_S)  # type: ignore[misc]
    with AdminClient(bootstrap_server(nodes["node1"])) as admin:
        (created,) = admin.create_topics([NewTopic("orders", 3)])
        created.check()
        (orders,) = admin.describe_topics(["orders"])
        assert {len(partition.replicas) for partition in orders.partitions} == {3}
    with ThreadPoolExecutor() as pool:
        assert all(pool.map(NodeProcess.stop, nodes.values()))
    for node in nodes.values():
        assert "Traceback" not in node.output_tail(), node.output_tail()


@pytest.mark.slow
def test_container_without_settings_is_a_cluster_of_one_and_starts_again(
    installed: Path, script: Mapping[str, Any], tmp_path: Path
) -> None:
    broker, controller, http = free_ports(3)
    environment = {
        **run_as_in_image(installed),
        "KAFKA_LISTENERS": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{HOST}:{broker}",
        "KAFKA_PYKRAFT_HTTP_LISTENER": f"{HOST}:{http}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "PYKRAFT_CONTAINER_DIRECTORY": str(tmp_path),
    }
    node = NodeProcess(1, (sys.executable, str(PACKAGING / "container.py")), tmp_path / "output", environment)
    try:
        for _ in range(2):
            node.start()
            wait_until("the node is healthy", lambda: is_healthy(node), PATIENCE_S)
            with AdminClient(f"{HOST}:{broker}") as admin:
                assert admin.describe_cluster().cluster_id == script["CLUSTER_ID"]
            assert node.stop()
    finally:
        node.kill()
