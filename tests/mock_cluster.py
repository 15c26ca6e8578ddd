"""librdkafka's mock cluster, in this process, on real sockets."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from confluent_kafka import Producer


class RecordFields(TypedDict, total=False):
    timestamp: int
    headers: list[tuple[str, str | bytes | None]]


class MockCluster:
    def __init__(self, brokers: int) -> None:
        self.producer = Producer(
            {"test.mock.num.brokers": brokers, "log_level": 0, "linger.ms": 20, "batch.num.messages": 100}
        )
        listed = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in listed)

    def produce(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self.producer.produce(topic, value, key=b"key", partition=partition)
        self.flush()

    def produce_numbered(
        self, topic: str, partition: int, count: int, **fields: Unpack[RecordFields]
    ) -> None:
        """Values are ``<partition>-<index>``, keys ``key-<index modulo 3>``."""
        for index in range(count):
            self.producer.produce(
                topic,
                b"%d-%d" % (partition, index),
                key=b"key-%d" % (index % 3),
                partition=partition,
                **fields,
            )
        self.flush()

    def flush(self) -> None:
        assert self.producer.flush(20) == 0
