"""Leaders and replicas moved by unmodified admin clients while a producer writes with acks=all."""

import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.narrowing import present

with warnings.catch_warnings():
    # It reads its message definitions by a function that Python 3.11 deprecated and 3.13 restored.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as KafkaPartition
    from kafka.errors import NoReassignmentInProgressError

pytestmark = [
    pytest.mark.interop,
    # kafka-python leaves sockets of its closed loop to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NewTopic = Callable[..., str]
TIMEOUT_S = PATIENCE_S


@pytest.fixture(scope="module")
def admin(trio: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=trio.bootstrap_servers.split(","))
    yield client
    client.close()


@pytest.fixture(scope="module")
def confluent(trio: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": trio.bootstrap_servers})


class Writer:
    """Produces numbered messages with acks=all until it is stopped; records which were acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []
        self.failures: list[str] = []

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(TIMEOUT_S)

    def wait_for_more(self) -> None:
        before = len(self.acknowledged)
        wait_until("writes go on", lambda: len(self.acknowledged) > before + 20, TIMEOUT_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            self._producer.produce(
                self._topic, str(number).encode(), partition=0, on_delivery=self._delivered(number)
            )
            number += 1
            self._producer.poll(0)

    def _delivered(self, number: int) -> Callable[[object, object], None]:
        def delivered(error: object, message: object) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failures.append(str(error))

        return delivered


def read_all(bootstrap_servers: str, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    try:
        while len(values) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(values)} of {count} after {TIMEOUT_S} s of silence"
            assert message.error() is None, message.error()
            values.append(int(present(message.value())))
    finally:
        consumer.close()
    return values


def partition_of(confluent: AdminClient, topic: str) -> tuple[int, list[int], list[int]]:
    """Leader, replicas and ISR of partition 0."""
    metadata = confluent.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0]
    return metadata.leader, list(metadata.replicas), sorted(metadata.isrs)


def test_a_partition_moves_through_the_cluster_under_writes_and_loses_nothing(
    trio: Cluster, admin: KafkaAdminClient, confluent: AdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic(min_insync_replicas="1")
    partition = KafkaPartition(topic, 0)

    def move(*replicas: int) -> None:
        assert admin.alter_partition_reassignments({partition: list(replicas)}) == {partition: None}
        wait_until(
            f"{topic}-0 is on {replicas}",
            lambda: (
                partition_of(confluent, topic)[1] == list(replicas)
                and partition_of(confluent, topic)[2] == sorted(replicas)
                and partition not in admin.list_partition_reassignments()
            ),
            TIMEOUT_S,
        )

    with Writer(trio.bootstrap_servers, topic) as writer:
        for replicas in ((1,), (2,), (3,), (3, 1), (2, 1), (1, 2, 3)):
            move(*replicas)
            assert partition_of(confluent, topic)[0] in replicas
            writer.wait_for_more()
    assert not writer.failures
    values = read_all(trio.bootstrap_servers, topic, len(writer.acknowledged))
    assert values == sorted(set(values)), "in order, and none twice"
    assert set(writer.acknowledged) <= set(values)


def test_removed_replicas_delete_their_logs(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    partition = KafkaPartition(topic, 0)
    wait_until("it is there", lambda: (trio.log_dirs[3] / f"{topic}-0").is_dir(), TIMEOUT_S)
    admin.alter_partition_reassignments({partition: [1, 2]})
    wait_until("it is gone", lambda: not list(trio.log_dirs[3].glob(f"{topic}-0*")), TIMEOUT_S)
    assert (trio.log_dirs[1] / f"{topic}-0").is_dir()
    admin.alter_partition_reassignments({partition: [1, 2, 3]})
    wait_until("it is back", lambda: (trio.log_dirs[3] / f"{topic}-0").is_dir(), TIMEOUT_S)


def test_cancelling_without_a_reassignment_is_refused(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    partition = KafkaPartition(new_topic(), 0)
    assert admin.alter_partition_reassignments({partition: None}) == {
        partition: NoReassignmentInProgressError
    }


def test_invalid_reassignments_are_refused(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    partition = KafkaPartition(new_topic(), 0)
    missing = KafkaPartition("nowhere", 0)
    answers = admin.alter_partition_reassignments({partition: [1, 77], missing: [1]})
    assert {key: error.__name__ for key, error in answers.items()} == {
        partition: "InvalidReplicationAssignmentError",
        missing: "UnknownTopicOrPartitionError",
    }


def test_preferred_leaders_are_elected_by_both_clients(
    admin: KafkaAdminClient, confluent: AdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    leader, replicas, _ = partition_of(confluent, topic)
    others = [broker for broker in replicas if broker != leader]
    partition = KafkaPartition(topic, 0)

    def prefer(first: int) -> None:
        order = [first, *(broker for broker in replicas if broker != first)]
        admin.alter_partition_reassignments({partition: order})
        wait_until("the order is new", lambda: partition_of(confluent, topic)[1] == order, TIMEOUT_S)

    prefer(others[0])
    asked = TopicPartition(topic, 0)
    answers = confluent.elect_leaders(ElectionType.PREFERRED, [asked]).result(TIMEOUT_S)
    assert [error for error in answers.values() if error is not None] == []
    wait_until("it leads", lambda: partition_of(confluent, topic)[0] == others[0], TIMEOUT_S)
    again = confluent.elect_leaders(ElectionType.PREFERRED, [asked]).result(TIMEOUT_S)
    assert [error.name() for error in again.values()] == ["ELECTION_NOT_NEEDED"]

    prefer(others[1])
    admin.elect_leaders(0, {topic: [0]})
    wait_until("it leads", lambda: partition_of(confluent, topic)[0] == others[1], TIMEOUT_S)


def test_no_unclean_election_of_a_partition_with_a_leader(
    confluent: AdminClient, new_topic: NewTopic
) -> None:
    asked = TopicPartition(new_topic(), 0)
    answers = confluent.elect_leaders(ElectionType.UNCLEAN, [asked]).result(TIMEOUT_S)
    assert [error.name() for error in answers.values()] == ["ELECTION_NOT_NEEDED"]
