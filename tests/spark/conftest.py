"""One Spark session for the whole test run, and a mock cluster with something to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykraft.spark.session import java_problem, local_session


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """Starts a Java virtual machine (4-10 s). Skips, with what to install, where there is none."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pykraft[spark]")
    problem = java_problem()
    if problem is not None:
        pytest.skip(problem)
    session = local_session("pykraft tests", spark__log__level="ERROR")
    yield session
    session.stop()


class MockCluster:
    """librdkafka's own mock cluster, in this process."""

    def __init__(self) -> None:
        import confluent_kafka

        self.producer = confluent_kafka.Producer(
            {"test.mock.num.brokers": 2, "log_level": 0, "linger.ms": 20, "batch.num.messages": 100}
        )
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def produce(self, topic: str, partition: int, count: int, **fields: Any) -> None:
        """Values are ``<partition>-<index>``, keys ``key-<index modulo 3>``."""
        for index in range(count):
            self.producer.produce(
                topic,
                b"%d-%d" % (partition, index),
                key=b"key-%d" % (index % 3),
                partition=partition,
                **fields,
            )
        assert self.producer.flush(20) == 0


@pytest.fixture(scope="session")
def mock_cluster() -> MockCluster:
    return MockCluster()
