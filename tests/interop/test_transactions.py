"""Transactions of unmodified clients, on three brokers: what is read is what was committed."""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.interop.java_jars import RUN_TIMEOUT_S, compile_client, run
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
PARTITIONS = 6


def make_producer(cluster: Cluster, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id} | settings
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def send(producer: Producer, topic: str, value: str) -> None:
    """One record to every partition, and all of them have arrived."""
    for partition in range(PARTITIONS):
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def read(cluster: Cluster, topic: str, isolation: str, count: int) -> list[list[str]]:
    """The values of each partition, once so many are read in all, and no more follow."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = Deadline(PATIENCE_S)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while (sum(map(len, found)) < count or len(at_end) < PARTITIONS) and not deadline.passed:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                at_end.add(present(message.partition()))
                continue
            found[present(message.partition())].append(present(message.value()).decode())
    finally:
        consumer.close()
    return found


@pytest.mark.shows("confluent-kafka", "idempotence", "transactions")
def test_committed_records_are_read_and_aborted_ones_are_not(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=PARTITIONS)
    producer = make_producer(trio, topic)
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, f"{number}")
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    committed = ["0", "2", "4"]
    assert read(trio, topic, "read_committed", 3 * PARTITIONS) == [committed] * PARTITIONS
    everything = [str(number) for number in range(6)]
    assert read(trio, topic, "read_uncommitted", 6 * PARTITIONS) == [everything] * PARTITIONS


def test_an_open_transaction_is_not_read_and_its_producer_is_fenced(
    trio: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    old = make_producer(trio, topic)
    old.begin_transaction()
    send(old, topic, "old")
    assert read(trio, topic, "read_committed", 0) == [[]] * PARTITIONS
    new = make_producer(trio, topic)
    new.begin_transaction()
    send(new, topic, "new")
    new.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].fatal()
    assert read(trio, topic, "read_committed", PARTITIONS) == [["new"]] * PARTITIONS
    assert read(trio, topic, "read_uncommitted", 2 * PARTITIONS) == [["old", "new"]] * PARTITIONS


@pytest.mark.shows("kafka-clients", "idempotence", "transactions")
def test_the_java_producer_commits_aborts_and_is_fenced(
    trio: Cluster, new_topic: NewTopic, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By the newest protocol (KIP-890): leaders add their partitions, and each end raises the epoch."""
    directory = tmp_path_factory.mktemp("java")
    classpath = compile_client("Transactions")
    topic = new_topic(partitions=PARTITIONS)
    arguments = [trio.bootstrap_servers, topic, str(PARTITIONS), f"java-{topic}"]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Transactions", *arguments]
    done = run(command, RUN_TIMEOUT_S, directory)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "open": f"Ongoing {PARTITIONS}",
        "listed": True,
        "fenced": True,
    }
    committed = ["0", "2", "4", "last"]
    assert read(trio, topic, "read_committed", 4 * PARTITIONS) == [committed] * PARTITIONS
    assert len(read(trio, topic, "read_uncommitted", 8 * PARTITIONS)[0]) == 8
