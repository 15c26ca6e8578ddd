"""Real server processes for unmodified clients: one cluster of one node, one of three, for the whole session.

Every node is a process of its own on free loopback ports (:mod:`tests.interop.clusters`). When a test fails,
its report shows the ends of the servers' logs; a traceback in a server's log fails the session.
"""

import itertools
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from pykraft.testing import Cluster
from tests.interop import fleet_hall, shown_features
from tests.interop.clusters import create_in_sync, own_cluster, refuse_tracebacks, running
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


@pytest.fixture(scope="session")
def trio() -> Iterator[Cluster]:
    """Three combined nodes."""
    with own_cluster(3, GROUP_PROPERTIES | {"min.insync.replicas": "2"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def single() -> Iterator[Cluster]:
    """One combined node, which creates topics on demand."""
    with own_cluster(1, GROUP_PROPERTIES | {"auto.create.topics.enable": "true"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Apache Kafka's command-line tools."""
    tools = KafkaTools(fetch_server("KAFKA'S TOOLS"))
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def hall(request: pytest.FixtureRequest) -> Iterator[Hall]:
    """Three nodes and the members of the fleets: a silent broker is replaced within seconds.

    Only of the clients that are asked for, and not for longer than a module: the members go on reading, which
    costs a third of a core.
    """
    tests = [item for item in request.session.items if item.path == request.path]
    kinds = {test.callspec.params["kind"] for test in tests if hasattr(test, "callspec")}
    with (
        tempfile.TemporaryDirectory(prefix="pykraft-fleets-") as directory,
        own_cluster(3, GROUP_PROPERTIES | fleet_hall.PROPERTIES) as cluster,
    ):
        hall = Hall(cluster, Path(directory), kinds)
        try:
            yield hall
        finally:
            hall.end()


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names for topics and groups that no other test uses."""

    def name(kind: str = "name") -> str:
        return f"{kind}-{next(_numbers)}"

    return name


@pytest.fixture
def new_topic(trio: Cluster, fresh: Callable[[str], str]) -> NewTopic:
    """Create a topic on the three nodes and return its name; all of its replicas are in sync."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = fresh("topic")
        return create_in_sync(trio, name, partitions, {k.replace("_", "."): v for k, v in configs.items()})

    return create


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _shown.note(item, report)
    if report.failed and Path(__file__).parent in item.path.parents:
        report.sections += [
            (f"Node {node}", text) for cluster in running for node, text in cluster.outputs().items()
        ]
    return report


@pytest.fixture(scope="module")
def other_client(single: Cluster) -> Iterator[OtherClient]:
    other_client = OtherClient(single.bootstrap_servers)
    yield other_client
    other_client.stop()


@pytest.fixture
def unharmed(single: Cluster, other_client: OtherClient) -> Iterator[None]:
    """Other clients continue, no traceback is printed, and the server does not grow."""
    other_client.check()
    before = memory_bytes(single)
    yield
    other_client.check()
    refuse_tracebacks(single)
    assert single.running_nodes == (1,)
    grown = memory_bytes(single) - before
    assert grown < MAX_GROWTH_BYTES, f"the server has grown by {grown / 2**20:.0f} MiB"
