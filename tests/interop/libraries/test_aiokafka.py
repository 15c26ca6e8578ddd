"""aiokafka: idempotent producer and a classic consumer group, on one event loop."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as TopicRequest

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]
TIMEOUT_S = PATIENCE_S


async def produce(
    cluster: Cluster, topic: str, values: list[bytes], partitions: int, **settings: object
) -> list[int]:
    """Send the values to the partitions in turn; returns their offsets."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value, partition=n % partitions) for n, value in enumerate(values)
        ]
        return [(await future).offset for future in futures]
    finally:
        await producer.stop()


def group_member(cluster: Cluster, topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=100,
    )


async def poll_until(consumers: list[AIOKafkaConsumer], done: Callable[[list[bytes]], bool]) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not done(found):
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found.extend(record.value for record in records)
    return found


@pytest.mark.shows("aiokafka", "produce", "{codec}", "assign", "idempotence")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_an_idempotent_producer_come_back_in_order(
    trio: Cluster, new_topic: NewTopic, codec: str | None
) -> None:
    topic = new_topic()
    values = [b"value %d " % n * 5 for n in range(500)]

    async def scenario() -> list[bytes]:
        offsets = await produce(
            trio, topic, values, 1, enable_idempotence=True, acks="all", compression_type=codec
        )
        assert offsets == list(range(500))
        consumer = AIOKafkaConsumer(bootstrap_servers=trio.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            return await poll_until([consumer], lambda seen: len(seen) >= 500)
        finally:
            await consumer.stop()

    assert asyncio.run(scenario()) == values


@pytest.mark.shows("aiokafka", "classic group")
def test_two_members_share_a_topic_and_commits_survive_them(
    trio: Cluster, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, group = new_topic(4), fresh("group")
    values = [b"%02d" % n for n in range(40)]

    async def scenario() -> None:
        consumers = [group_member(trio, topic, group) for _ in range(2)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        try:
            await poll_until(consumers, lambda _: [len(c.assignment()) for c in consumers] == [2, 2])
            await produce(trio, topic, values, 4)
            found = await poll_until(consumers, lambda seen: len(seen) >= 40)
            assert sorted(found) == values
            for consumer in consumers:
                await consumer.commit()
            await consumers.pop().stop()
            await poll_until(consumers, lambda _: len(consumers[0].assignment()) == 4)
        finally:
            for consumer in consumers:
                await consumer.stop()
        successor = group_member(trio, topic, group)
        await successor.start()
        try:
            await poll_until([successor], lambda _: len(successor.assignment()) == 4)
            assert [await successor.committed(TopicPartition(topic, n)) for n in range(4)] == [10] * 4
            await produce(trio, topic, [b"later"], 1)
            assert await poll_until([successor], lambda seen: len(seen) >= 1) == [b"later"]
        finally:
            await successor.stop()

    asyncio.run(scenario())


@pytest.mark.shows("aiokafka", "admin")
def test_admin_creates_lists_and_deletes_topics(trio: Cluster, fresh: Fresh) -> None:
    topic = fresh("topic")

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=trio.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([TopicRequest(topic, 2, 3)])

            async def listed(expected: bool) -> None:
                async with asyncio.timeout(TIMEOUT_S):
                    while (topic in await admin.list_topics()) is not expected:
                        pass

            await listed(True)
            await admin.delete_topics([topic])
            await listed(False)
        finally:
            await admin.close()

    asyncio.run(scenario())
