"""The pytest plugin: clusters and topics as fixtures. Loaded by pytest wherever pykraft is installed.

``kafka_cluster`` is one cluster for the whole session, as the ini options say. ``kafka`` is that one, or the
one that the test's marker asks for (``@pytest.mark.kafka(nodes=3, properties={...}, processes=True)``); equal
markers share it. After each test that uses ``kafka`` the cluster is healed. ``kafka_async`` is the same for
tests with coroutines, whatever plugin runs them. ``kafka_topic`` is a new topic of that cluster. Every
process of pytest-xdist has clusters of its own, on free ports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pykraft.testing import AsyncCluster, Cluster

_OF_A_CLUSTER: Final = frozenset({"nodes", "properties", "host", "port", "processes", "http"})
_OF_A_TOPIC: Final = frozenset({"partitions", "replication_factor", "configs"})
_LONGEST_NAME: Final = 200
_MARKER: Final = (
    "kafka(nodes=1, properties={}, host='127.0.0.1', port=0, processes=False, http=False, partitions=1,"
    " replication_factor=None, configs={}): the cluster of the fixture `kafka`, the topic of `kafka_topic`"
)

Clusters = Callable[..., "Cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_nodes", "Nodes of the fixture kafka_cluster", default="1")
    parser.addini("kafka_properties", "Their properties: key=value, one a line", type="linelist", default=[])
    parser.addini("kafka_processes", "Whether they are processes", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def _kafka_clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    """Starts a cluster when it is asked for first."""
    from pykraft.testing import Cluster

    properties = dict(_pair(line) for line in pytestconfig.getini("kafka_properties"))
    usual = {
        "nodes": int(pytestconfig.getini("kafka_nodes")),
        "processes": pytestconfig.getini("kafka_processes"),
    }
    started: dict[object, Cluster] = {}
    with ExitStack() as running:

        def find(**asked: Any) -> Cluster:
            options = usual | asked
            options["properties"] = properties | dict(asked.get("properties") or {})
            key = tuple(sorted((name, str(value)) for name, value in options.items()))
            if key not in started:
                started[key] = running.enter_context(Cluster(**options))
            return started[key]

        yield find


@pytest.fixture(scope="session")
def kafka_cluster(_kafka_clusters: Clusters) -> Cluster:
    """A running cluster (:class:`pykraft.testing.Cluster`), the same for all tests."""
    return _kafka_clusters()


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _kafka_clusters: Clusters) -> Iterator[Cluster]:
    """The cluster that the test's marker ``kafka`` asks for; without one that of ``kafka_cluster``."""
    cluster = _kafka_clusters(**_asked(request, _OF_A_CLUSTER))
    request.node.stash[_USED] = cluster
    try:
        yield cluster
    finally:
        cluster.heal()


@pytest.fixture
def kafka_async(kafka: Cluster) -> AsyncCluster:
    """The cluster of ``kafka`` with methods to await (:class:`pykraft.testing.AsyncCluster`)."""
    from pykraft.testing import AsyncCluster

    return AsyncCluster(kafka)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka: Cluster) -> str:
    """The name of a new topic, made of the test's name; partitions and configs are those of the marker."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "_", request.node.name)[:_LONGEST_NAME]
    return kafka.create_topic(f"{name}-{next(_numbers)}", **_asked(request, _OF_A_TOPIC))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of nodes in processes to the report of a failure."""
    report = yield
    cluster = item.stash.get(_USED, None)
    if report.failed and cluster is not None:
        report.sections += [(f"Kafka node {node}", text) for node, text in cluster.outputs().items()]
    return report


_numbers = count(1)
_USED: Final = pytest.StashKey["Cluster"]()


def _asked(request: pytest.FixtureRequest, names: frozenset[str]) -> Mapping[str, Any]:
    """The arguments of the nearest marker, as far as they have these names."""
    marker = request.node.get_closest_marker("kafka")
    if marker is None:
        return {}
    unknown = sorted(marker.kwargs.keys() - _OF_A_CLUSTER - _OF_A_TOPIC)
    if marker.args or unknown:
        raise pytest.UsageError(f"the marker kafka takes names only, and no {', '.join(unknown) or 'values'}")
    return {name: value for name, value in marker.kwargs.items() if name in names}


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"kafka_properties: {line!r} is not key=value")
    return key.strip(), value.strip()
