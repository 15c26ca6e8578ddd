"""confluent-kafka reads, processes and writes: the offsets of its group count when its transaction does."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
UNSTABLE_OFFSET_COMMIT = 88


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_when_the_transaction_is_committed(
    trio: Cluster, new_topic: NewTopic, fresh: Callable[[str], str], commits: bool
) -> None:
    topic, name = new_topic(), fresh("read-process-write")
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": trio.bootstrap_servers}
    producer = Producer(servers | {"transactional.id": name, "transaction.timeout.ms": 60_000})
    consumer = Consumer(
        servers
        | {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        | {"isolation.level": "read_committed"}
    )
    admin = AdminClient(servers)

    def committed(*, stable: bool) -> int:
        """A stable offset is asked for until the markers of the transaction are written."""
        asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0)])
        deadline = Deadline(PATIENCE_S)
        while True:
            answers = admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=30)
            (found,) = present(answers[name].result().topic_partitions)
            if found.error is None:
                return int(found.offset)
            assert found.error.code() == UNSTABLE_OFFSET_COMMIT and not deadline.passed, found.error

    try:
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"input", partition=0)
        producer.commit_transaction(60)
        consumer.subscribe([topic])
        message = None
        while message is None:
            message = consumer.poll(1)
        assert message.error() is None and message.value() == b"input"
        producer.begin_transaction()
        producer.produce(topic, b"output", partition=0)
        position = [TopicPartition(topic, 0, present(message.offset()) + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 60)
        assert committed(stable=False) < 0
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
        expected = position[0].offset if commits else -1001
        assert committed(stable=True) == expected
    finally:
        consumer.close()
