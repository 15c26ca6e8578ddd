"""The own producer on real brokers: confluent-kafka reads its records, also while leaders move."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.metadata import TopicPartition as Where
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig, RecordMetadata
from pykraft.kafka_protocol.compression import Compression
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.narrowing import present

pytestmark = pytest.mark.interop

PARTITIONS = 3
RECORDS = 300


def read_all(cluster: Cluster, topic: str, count: int) -> dict[tuple[int, int], tuple[object, ...]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    found: dict[tuple[int, int], tuple[object, ...]] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        deadline = Deadline(PATIENCE_S)
        while len(found) < count and not deadline.passed:
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                where = (present(message.partition()), present(message.offset()))
                found[where] = (message.key(), message.value(), message.headers(), message.timestamp()[1])
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    "config",
    [
        ProducerConfig(linger_ms=1, batch_size_bytes=500),
        ProducerConfig(compression=Compression.ZSTD),
        ProducerConfig(acks=1, enable_idempotence=False),
    ],
    ids=["idempotent", "compressed", "acks=1"],
)
def test_its_records_are_read_at_the_reported_offsets(
    trio: Cluster, new_topic: Callable[..., str], config: ProducerConfig
) -> None:
    topic = new_topic(PARTITIONS)

    async def write() -> list[RecordMetadata]:
        client = ClientConfig(parse_bootstrap_servers(trio.bootstrap_servers))
        producer = Producer(AsyncioNetwork(), client, config)
        try:
            sends = [
                producer.send(topic, n % PARTITIONS, b"k", b"%d" % n, [("h", b"x")], 1_000 + n)
                for n in range(RECORDS)
            ]
            return await asyncio.gather(*sends)
        finally:
            await producer.close()

    results = asyncio.run(write())
    found = read_all(trio, topic, RECORDS)
    assert len(found) == RECORDS
    for n, metadata in enumerate(results):
        assert metadata.offset == n // PARTITIONS, "the order of sending"
        expected = (b"k", b"%d" % n, [("h", b"x")], 1_000 + n)
        assert found[metadata.partition, metadata.offset] == expected


def test_moving_leaders_lose_no_record_and_write_none_twice(
    trio: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)

    def move_everything() -> None:
        with AdminClient(trio.bootstrap_servers) as admin:
            (known,) = admin.describe_topics([topic])
            targets = {
                partition.index: next(r for r in partition.replicas if r != partition.leader)
                for partition in known.partitions
            }
            moves = {Where(topic, index): [target] for index, target in targets.items()}
            for outcome in admin.alter_partition_reassignments(moves):
                assert outcome.error is None, outcome.error
            deadline = Deadline(PATIENCE_S)
            while {p.index: p.leader for p in known.partitions} != targets:
                assert not deadline.passed, f"leaders did not move: {known}"
                (known,) = admin.describe_topics([topic])

    async def write() -> list[RecordMetadata]:
        client = ClientConfig(parse_bootstrap_servers(trio.bootstrap_servers))
        producer = Producer(AsyncioNetwork(), client, ProducerConfig(linger_ms=0))
        moving = asyncio.get_running_loop().run_in_executor(None, move_everything)
        sends: list[asyncio.Future[RecordMetadata]] = []
        try:
            while not moving.done() or len(sends) < RECORDS:
                n = len(sends)
                sends.append(asyncio.ensure_future(producer.send(topic, n % PARTITIONS, None, b"%d" % n)))
                await asyncio.sleep(0.001)
            await moving
            return await asyncio.gather(*sends)
        finally:
            await producer.close()

    results = asyncio.run(write())
    found = read_all(trio, topic, len(results))
    assert sorted(int(value) for _, value, _, _ in found.values()) == list(range(len(results)))  # type: ignore[call-overload]
    for n, metadata in enumerate(results):
        assert metadata.offset == n // PARTITIONS
