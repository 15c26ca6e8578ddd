"""Clusters for the client: scripted in memory, and librdkafka's mock cluster on real sockets."""

import pytest

from tests.kafka_client.scripted import ScriptedCluster
from tests.mock_cluster import MockCluster


@pytest.fixture
def scripted() -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture(scope="session")
def mock_cluster() -> MockCluster:
    return MockCluster(brokers=3)
