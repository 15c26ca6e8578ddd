"""The client and the data source on a real cluster of three node processes, while a leader is killed."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Message, Producer

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    ConfigChange,
    NewTopic,
    TopicDescription,
)
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.spark.discovery import ClusterLogs
from pykraft.spark.options import parse_batch_options
from pykraft.spark.planner import ReadTask, plan_batch
from pykraft.spark.reader import read_task
from pykraft.testing.processes.waits import wait_until
from tests.narrowing import present

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN_TIMEOUT_S = 20

pytestmark = pytest.mark.interop

COUNT = 3_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def admin(cluster: ProcessCluster) -> Iterator[AdminClient]:
    with AdminClient(cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def topic(cluster: ProcessCluster, admin: AdminClient) -> str:
    """Two partitions; values are whole numbers, record n carries timestamp n after the first."""
    admin.create_topics([NewTopic("numbers", 2, 3)])[0].check()
    refused: list[ConfluentError] = []

    def delivered(error: ConfluentError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    # Idempotence keeps the order of a partition when a broker that does not lead it yet refuses a batch.
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 100,
        }
    )
    for number in range(COUNT):
        producer.produce(
            "numbers",
            b"%d" % number,
            partition=number % 2,
            timestamp=FIRST_TIMESTAMP_MS + number,
            on_delivery=delivered,
        )
    assert producer.flush(60) == 0 and not refused
    return "numbers"


def plan(servers: str, **options: str) -> list[ReadTask]:
    checked = parse_batch_options({"kafka.bootstrap.servers": servers} | options)
    client = Cluster(BlockingNetwork(), checked.client)
    try:
        return run(plan_batch(ClusterLogs(client, checked), checked, ("value",)))
    finally:
        client.close()


def values(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [int(value) for batch in batches for value in batch.column(0).to_pylist()]


def test_admin_client_shows_its_own_changes(cluster: ProcessCluster, admin: AdminClient) -> None:
    created, bad = admin.create_topics(
        [NewTopic("made", 3, 2, {"retention.ms": "5000"}), NewTopic("bad/name")]
    )
    assert created.error is None
    assert bad.error is not None and bad.error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    # An answer means that the change is committed; a broker shows it once its own image contains it.
    wait_until("the topic is shown", lambda: _described(admin, "made") is not None, SHOWN_TIMEOUT_S)
    described = _described(admin, "made")
    assert present(described).topic_id == created.topic_id
    assert [len(partition.replicas) for partition in present(described).partitions] == [2, 2, 2]
    admin.alter_configs(
        ConfigResourceType.TOPIC, "made", [ConfigChange("retention.ms", ConfigOperation.SET, "7000")]
    )
    changed = ("7000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    wait_until("the new value is shown", lambda: _retention(admin) == changed, SHOWN_TIMEOUT_S)
    admin.create_partitions({"made": 5})[0].check()
    wait_until(
        "the new partitions are shown",
        lambda: len(present(_described(admin, "made")).partitions) == 5,
        SHOWN_TIMEOUT_S,
    )
    admin.delete_topics(["made"])[0].check()
    wait_until("the topic is gone", lambda: _described(admin, "made") is None, SHOWN_TIMEOUT_S)
    with pytest.raises(KafkaError, match="made does not exist"):
        admin.describe_topics(["made"])


def _described(admin: AdminClient, name: str) -> TopicDescription | None:
    """The topic as one of the brokers shows it, None if it does not exist there."""
    try:
        (described,) = admin.describe_topics([name])
    except KafkaError as error:
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None
    return described


def _retention(admin: AdminClient) -> tuple[str | None, ConfigSource]:
    entries = {entry.name: entry for entry in admin.describe_configs(ConfigResourceType.TOPIC, "made")}
    return entries["retention.ms"].value, entries["retention.ms"].source


def test_quorum_and_cluster_are_described(cluster: ProcessCluster, admin: AdminClient) -> None:
    quorum = admin.describe_quorum()
    assert {voter.replica_id for voter in quorum.voters} == {1, 2, 3}
    assert quorum.leader_id in {1, 2, 3} and quorum.high_watermark > 0
    described = admin.describe_cluster()
    assert [broker.id for broker in described.brokers] == [1, 2, 3]
    assert len(described.cluster_id) == 22


def test_group_that_does_not_exist_is_reported(admin: AdminClient) -> None:
    with pytest.raises(KafkaError) as caught:
        admin.describe_group("nobody")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_timestamps_choose_the_range(cluster: ProcessCluster, topic: str) -> None:
    tasks = plan(
        cluster.bootstrap_servers,
        subscribe=topic,
        startingTimestamp=str(FIRST_TIMESTAMP_MS + 1_000),
        endingOffsetsByTimestamp=json.dumps(
            {topic: {"0": FIRST_TIMESTAMP_MS + 1_200, "1": FIRST_TIMESTAMP_MS * 2}}
        ),
    )
    read = [values(read_task(task)) for task in tasks]
    assert read == [list(range(1_000, 1_200, 2)), list(range(1_001, COUNT, 2))]


def test_task_reads_every_record_once_even_if_the_leader_is_killed(
    cluster: ProcessCluster, admin: AdminClient, topic: str
) -> None:
    """Small fetches, so that most of the range is still to be read when the leader dies."""
    small = {"kafka.max.partition.fetch.bytes": "500", "kafka.request.timeout.ms": "5000"}
    task = plan(cluster.bootstrap_servers, subscribe=topic, **small)[0]
    (described,) = admin.describe_topics([topic])
    leader = described.partitions[task.offsets.partition].leader
    batches = read_task(task)
    first = [next(batches) for _ in range(3)]
    cluster.nodes[present(leader)].kill()
    try:
        assert values(first + list(batches)) == list(range(0, COUNT, 2))
        (moved,) = admin.describe_topics([topic])
        assert moved.partitions[task.offsets.partition].leader not in (None, leader)
        where = TopicPartition(topic, task.offsets.partition)
        assert admin.list_offsets({where: -1})[where].offset == COUNT // 2
    finally:
        cluster.heal()


@pytest.mark.spark
def test_spark_reads_a_real_cluster(
    spark_session: "SparkSession", cluster: ProcessCluster, topic: str
) -> None:
    reader = spark_session.read.format("pykraft").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame = reader.option("subscribe", topic).option("minPartitions", "4").load()
    total = frame.selectExpr("sum(cast(cast(value as string) as bigint)) as total", "count(*) as n").first()
    assert (present(total).n, present(total).total) == (COUNT, sum(range(COUNT)))
