"""Fixtures: a scripted cluster in memory, and librdkafka's mock cluster on real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka_client.scripted import ScriptedCluster


@pytest.fixture
def scripted() -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[MockCluster]:
    cluster = MockCluster()
    yield cluster
    cluster.close()


class MockCluster:
    """librdkafka's own mock cluster of three brokers, in this process, on real sockets."""

    def __init__(self) -> None:
        import confluent_kafka

        self.producer = confluent_kafka.Producer(
            {"test.mock.num.brokers": 3, "log_level": 0, "linger.ms": 20, "batch.num.messages": 100}
        )
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> None:
        for value in values:
            self.producer.produce(topic, value, key=b"key", partition=partition)
        assert self.producer.flush(20) == 0

    def close(self) -> None:
        self.producer.flush(5)
