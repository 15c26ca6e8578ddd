"""The own transactional producer on this broker and on Apache Kafka, by each transaction.version.

What confluent-kafka reads with read_committed is what was committed; pykraft's own reader and the Spark
source's reader find the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import FencedError
from pykraft.kafka_client.fetcher import FetchConfig, PartitionFetcher
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_client.results import FeatureUpdate
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.enums import UpgradeType
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.spark.discovery import ClusterLogs
from pykraft.spark.options import parse_batch_options
from pykraft.spark.planner import plan_batch
from pykraft.spark.reader import read_task
from pykraft.testing.processes.waits import PATIENCE_S, Deadline, wait_until
from tests.interop.clusters import own_cluster
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import KafkaBroker
from tests.narrowing import present

pytestmark = pytest.mark.interop

PARTITIONS = 3
LEVELS = (2, 1, 0)


@dataclass
class System:
    name: str
    address: str


@pytest.fixture(scope="module", params=["pykraft", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "pykraft":
        with own_cluster(1) as cluster:
            yield System("pykraft", cluster.bootstrap_servers)
        return
    tools: KafkaTools = request.getfixturevalue("kafka_tools")
    broker = KafkaBroker(tools, Path(directory))
    broker.start()
    try:
        yield System("kafka", broker.address)
    finally:
        broker.kill()


def set_level(system: System, level: int) -> None:
    """The cluster's transaction.version; also where it is that already."""
    name = "transaction.version"
    with AdminClient(system.address) as admin:

        def current() -> int:
            features = {one.name: one.finalized_level for one in admin.describe_features().features}
            return features.get(name, 0)

        if current() != level:
            upgrade_type = UpgradeType.UPGRADE if level > current() else UpgradeType.SAFE_DOWNGRADE
            admin.update_features([FeatureUpdate(name, level, upgrade_type)])
        wait_until(f"transaction.version is {level}", lambda: current() == level, PATIENCE_S)


def make_producer(
    system: System, transactional_id: str, config: ProducerConfig | None = None
) -> BlockingProducer:
    client = ClientConfig(parse_bootstrap_servers(system.address))
    return BlockingProducer(client, config, TransactionConfig(transactional_id))


def send_everywhere(producer: BlockingProducer, topic: str, value: str) -> None:
    for partition in range(PARTITIONS):
        producer.send(topic, partition, None, value.encode())


def by_confluent(system: System, topic: str, isolation: str) -> list[list[str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": system.address,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = Deadline(PATIENCE_S)
    try:
        consumer.assign([Place(topic, partition, 0) for partition in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            assert not deadline.passed
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                at_end.add(present(message.partition()))
            else:
                found[present(message.partition())].append(present(message.value()).decode())
    finally:
        consumer.close()
    return found


def by_own_reader(system: System, topic: str, isolation: int) -> list[list[str]]:
    cluster = Cluster(BlockingNetwork(), ClientConfig(parse_bootstrap_servers(system.address)))
    config = FetchConfig(isolation_level=isolation, max_partition_fetch_bytes=300)

    async def read(partition: int) -> list[str]:
        deadline_ms = cluster.deadline(int(PATIENCE_S * 1_000))
        place = TopicPartition(topic, partition)
        ends = await list_offsets(cluster, {place: LATEST_TIMESTAMP}, deadline_ms, isolation_level=isolation)
        fetcher = PartitionFetcher(cluster, topic, None, partition, 0, config)
        values = []
        while fetcher.position < present(ends[place].offset):
            fetched = await fetcher.fetch(deadline_ms)
            for position, header in visible_batches(fetched.data, fetched.headers, fetched.aborted):
                batch = fetched.data[position : position + header.size_bytes]
                values += [present(record.value).decode() for record in decode_batch(batch)]
        return values

    try:
        return [run(read(partition)) for partition in range(PARTITIONS)]
    finally:
        cluster.close()


def by_spark_source(system: System, topic: str, isolation: str) -> list[list[str]]:
    """As executors read; Spark itself only asks for the plan and takes the batches."""
    options = {
        "kafka.bootstrap.servers": system.address,
        "subscribe": topic,
        "kafka.isolation.level": isolation,
    }
    checked = parse_batch_options(options)
    client = Cluster(BlockingNetwork(), checked.client)
    try:
        tasks = run(plan_batch(ClusterLogs(client, checked), checked, ("partition", "value")))
    finally:
        client.close()
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for task in tasks:
        table = pa.Table.from_batches(read_task(task))
        for row in table.to_pylist():
            found[row["partition"]].append(row["value"].decode())
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_committed_is_read_by_every_reader(system: System, level: int) -> None:
    set_level(system, level)
    topic = f"transactions-{level}"
    admin = ConfluentAdmin({"bootstrap.servers": system.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    config = ProducerConfig(linger_ms=1, compression=Compression.LZ4)
    source = TopicPartition(topic, 0)
    with make_producer(system, topic, config) as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            send_everywhere(producer, topic, str(number))
            offsets = {source: OffsetAndMetadata(100 + number)}
            producer.send_offsets_to_transaction(offsets, f"group-{topic}")
            if number % 3 == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()

        # One is open, and its producer is fenced by another, which commits once more.
        producer.begin_transaction()
        send_everywhere(producer, topic, "open")
        assert producer.flush()
        with make_producer(system, topic) as other:
            other.init_transactions()
            with pytest.raises(FencedError):
                producer.commit_transaction()
            other.begin_transaction()
            send_everywhere(other, topic, "last")
            other.commit_transaction()

    committed = [str(number) for number in range(12) if number % 3 != 1] + ["last"]

    def is_read() -> bool:  # markers are written after the answer of EndTxn
        return by_confluent(system, topic, "read_committed") == [committed] * PARTITIONS

    wait_until("the last transaction is read", is_read, PATIENCE_S)
    everything = by_confluent(system, topic, "read_uncommitted")
    assert everything == [[*map(str, range(12)), "open", "last"]] * PARTITIONS
    for isolation, expected in ((READ_COMMITTED, committed), (READ_UNCOMMITTED, everything[0])):
        assert by_own_reader(system, topic, isolation) == [expected] * PARTITIONS
        name = "read_committed" if isolation == READ_COMMITTED else "read_uncommitted"
        assert by_spark_source(system, topic, name) == [expected] * PARTITIONS
    group = GroupPartitions(f"group-{topic}", [Place(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([group], require_stable=True).values()
    assert present(found.result(PATIENCE_S).topic_partitions)[0].offset == 111
