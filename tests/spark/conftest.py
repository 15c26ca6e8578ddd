"""One Spark session for the whole test run, a mock cluster with records to read, and a node to write to."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.spark.session import local_session
from pykraft.testing import Cluster
from tests.mock_cluster import MockCluster
from tests.spark_here import skip_without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session() -> "Iterator[SparkSession]":
    """Starts a Java virtual machine (4-10 s). Skips, naming what to install, if there is none."""
    skip_without_spark()
    session = local_session("pykraft tests", spark__log__level="ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mock_cluster() -> MockCluster:
    return MockCluster(brokers=2)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of pykraft, where the mock cluster does not do."""
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), 1) as cluster:
        cluster.format()
        cluster.start()
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def kraft() -> Iterator[Cluster]:
    """The same in a thread: for the parts of the driver and of tasks, which need no Spark."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three nodes, of this file alone: it kills them, or what they hold."""
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), 3, FAST_FAILOVER) as cluster:
        cluster.format()
        cluster.start()
        yield cluster


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """Three partitions, of this test alone."""
    name: str = request.node.name
    with AdminClient(servers) as admin:
        admin.create_topics([NewTopic(name, 3, 1)])[0].check()
    return name
