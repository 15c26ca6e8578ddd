"""Real server processes for unmodified clients: one cluster of one node, one of three, for the whole session.

Every node is a ``pykraft server start`` process on free loopback ports, formatted by ``pykraft storage
format``. All of them are stopped by process id when the session ends, however it ends. When a test fails, its
report shows the ends of the servers' logs; a traceback in a server's log fails the session.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from pykraft.jepsen_like.process_cluster import ProcessCluster
from tests.interop import fleet_hall, shown_features
from tests.interop.fleet_hall import Hall
from tests.interop.java_jars import KafkaTools, fetch_server
from tests.interop.peer import MAX_GROWTH_BYTES, OtherClient, memory_bytes

# Sessions of group members are short, so that a crashed member is noticed within seconds.
GROUP_PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "300",
}

NewTopic = Callable[..., str]
_running: list[ProcessCluster] = []
_numbers = itertools.count(1)
_shown = shown_features.Shown()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shows(client, *features): what passing shows (shown_features.py)")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if shown_features.is_writing() and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        assert not hasattr(session.config, "workerinput"), "one process has to see all tests: -n 0"
        _shown.write()


@pytest.fixture(autouse=True)
def features_are_published(request: pytest.FixtureRequest) -> None:
    shown_features.check(request.node)


def _run_cluster(nodes: int, properties: dict[str, str]) -> Iterator[ProcessCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="pykraft-interop-") as directory,
        ProcessCluster(Path(directory) / "cluster", nodes, GROUP_PROPERTIES | properties) as cluster,
    ):
        _running.append(cluster)
        try:
            cluster.format()
            try:
                cluster.start()
            except Exception as error:
                pytest.fail(f"the cluster did not start: {error}\n{cluster.output_tails()}", pytrace=False)
            yield cluster
            not_clean = cluster.stop()
            assert not not_clean, f"nodes that did not stop cleanly: {not_clean}\n{cluster.output_tails()}"
            refuse_tracebacks(cluster)
        finally:
            _running.remove(cluster)


def refuse_tracebacks(cluster: ProcessCluster) -> None:
    """No node may have printed a traceback, whatever its clients did."""
    for node in cluster.nodes.values():
        printed = node.output_file.read_text("utf-8", "replace")
        at = printed.find("Traceback (most recent call last)")
        assert at < 0, f"node {node.node_id} printed a traceback:\n{printed[max(0, at - 500) : at + 3000]}"


@pytest.fixture(scope="session")
def trio() -> Iterator[ProcessCluster]:
    """Three combined nodes."""
    yield from _run_cluster(3, {"min.insync.replicas": "2"})


@pytest.fixture(scope="session")
def single() -> Iterator[ProcessCluster]:
    """One combined node, which creates topics on demand."""
    yield from _run_cluster(1, {"auto.create.topics.enable": "true"})


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Apache Kafka's command-line tools."""
    tools = KafkaTools(fetch_server("KAFKA'S TOOLS"))
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Three nodes and the members of the fleets: a silent broker is replaced within seconds.

    Not for longer than a module: the members go on reading, which costs a third of a core.
    """
    with tempfile.TemporaryDirectory(prefix="pykraft-fleets-") as directory:
        for cluster in _run_cluster(3, dict(fleet_hall.PROPERTIES)):
            hall = Hall(cluster, Path(directory))
            try:
                yield hall
            finally:
                hall.end()


@pytest.fixture
def no_tracebacks() -> Callable[[ProcessCluster], None]:
    return refuse_tracebacks


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names for topics and groups that no other test uses."""

    def name(kind: str = "name") -> str:
        return f"{kind}-{next(_numbers)}"

    return name


@pytest.fixture
def new_topic(trio: ProcessCluster, fresh: Callable[[str], str]) -> NewTopic:
    """Create a topic on the three nodes and return its name; all of its replicas are in sync."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = fresh("topic")
        trio.create_topic(name, partitions, 3, {k.replace("_", "."): v for k, v in configs.items()})
        return name

    return create


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _shown.note(item, report)
    if report.failed and _running and Path(__file__).parent in item.path.parents:
        for cluster in _running:
            report.sections.append((f"Servers in {cluster.directory}", cluster.output_tails()))
    return report


@pytest.fixture(scope="module")
def other_client(single: ProcessCluster) -> Iterator[OtherClient]:
    other_client = OtherClient(single.bootstrap_servers)
    yield other_client
    other_client.stop()


@pytest.fixture
def unharmed(
    single: ProcessCluster, other_client: OtherClient, no_tracebacks: Callable[[ProcessCluster], None]
) -> Iterator[None]:
    """Other clients continue, no traceback is printed, and the server does not grow."""
    other_client.check()
    before = memory_bytes(single)
    yield
    other_client.check()
    no_tracebacks(single)
    assert single.nodes[1].unordered_exit is None
    grown = memory_bytes(single) - before
    assert grown < MAX_GROWTH_BYTES, f"the server has grown by {grown / 2**20:.0f} MiB"
