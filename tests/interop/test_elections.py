"""The leaders after brokers were stopped and killed: clean, eligible, unclean and preferred elections."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.clusters import own_cluster, wait_ready
from tests.narrowing import present

pytestmark = pytest.mark.interop

TIMEOUT_S = PATIENCE_S
PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "leader.imbalance.check.interval.seconds": "1",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, PROPERTIES) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def create(admin: AdminClient, topic: str, replicas: list[int], min_isr: int) -> None:
    new = NewTopic(topic, 1, replica_assignment=[replicas], config={"min.insync.replicas": str(min_isr)})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    wait_until("it is led", lambda: partition_of(admin, topic) == (replicas[0], sorted(replicas)), TIMEOUT_S)


def partition_of(admin: AdminClient, topic: str) -> tuple[int, list[int]]:
    """Leader and ISR of partition 0; leader -2 while no broker answers."""
    try:
        described = admin.list_topics(topic, timeout=2).topics[topic].partitions.get(0)
    except KafkaException:
        return -2, []
    return (-2, []) if described is None else (described.leader, sorted(described.isrs))


def write(cluster: Cluster, topic: str, values: range) -> None:
    """Produce the values; all are acknowledged with acks=all."""
    failed: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0 and not failed


def read(cluster: Cluster, topic: str) -> list[int]:
    """All values of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while (message := consumer.poll(TIMEOUT_S)) is not None:
            if message.error() is None:
                values.append(int(present(message.value())))
            elif present(message.error()).code() == KafkaError._PARTITION_EOF:
                return values
            else:
                assert present(message.error()).retriable() or present(message.error()).code() < 0, (
                    message.error()
                )
        raise AssertionError("the end of the partition was not returned")
    finally:
        consumer.close()


def until_led(admin: AdminClient, topic: str, leader: int, isr: list[int] | None = None) -> None:
    def led() -> bool:
        found, members = partition_of(admin, topic)
        return found == leader and (isr is None or members == isr)

    wait_until(f"{topic} is led by {leader}", led, TIMEOUT_S)


def until_leaderless(cluster: Cluster, admin: AdminClient, topic: str) -> None:
    """Also wait until every running broker is unfenced, so that it could be elected."""
    wait_ready(cluster)
    until_led(admin, topic, -1)


def test_a_replica_outside_the_isr_leads_only_by_an_unclean_election_and_the_preferred_one_leads_in_the_end(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "t", [1, 2], min_isr=1)
    write(cluster, "t", range(10))
    cluster.kill(2)
    until_led(admin, "t", 1, [1])
    write(cluster, "t", range(10, 30))
    cluster.kill(1)
    cluster.restart(2)
    until_leaderless(cluster, admin, "t")

    answer = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("t", 0)]).result(TIMEOUT_S)
    assert list(answer.values()) == [None]
    until_led(admin, "t", 2, [2])
    assert read(cluster, "t") == list(range(10)), "records that only 1 had are lost"
    write(cluster, "t", range(100, 105))

    cluster.restart(1)
    # Its log is truncated to the new leader's; then it is in sync and, as the preferred replica, leads again.
    until_led(admin, "t", 1, [1, 2])
    assert read(cluster, "t") == [*range(10), *range(100, 105)]


def test_replicas_that_stopped_in_order_stay_eligible(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "t", [1, 2], min_isr=2)
    write(cluster, "t", range(10))
    cluster.shut_down(2)
    until_led(admin, "t", 1, [1])
    cluster.kill(1)
    cluster.restart(2)
    until_led(admin, "t", 2, [2])  # commits nothing until there are two again
    cluster.restart(1)
    until_led(admin, "t", 1, [1, 2])
    write(cluster, "t", range(10, 20))
    assert read(cluster, "t") == list(range(20))


def test_unclean_elections_happen_once_a_topic_allows_them(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "t", [1, 2], min_isr=1)
    cluster.kill(2)
    until_led(admin, "t", 1, [1])
    write(cluster, "t", range(5))
    cluster.kill(1)
    cluster.restart(2)
    until_leaderless(cluster, admin, "t")
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    until_led(admin, "t", 2, [2])
