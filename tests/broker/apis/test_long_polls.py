"""Fetches of several partitions: what ends a long poll, and which limits apply to an answer."""

import asyncio

import pytest

from pykraft.kafka_protocol.messages import records
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.narrowing import present
from tests.waits import until


def fetch_both(
    offset: int, *, min_bytes: int, max_wait_ms: int = 0, max_bytes: int = 2**31 - 1
) -> records.FetchRequest:
    """A Fetch of the only partitions of ``t`` and ``u``, from the same offset on."""
    partition = records.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [records.FetchTopic(topic=name, partitions=[partition]) for name in ("t", "u")]
    return records.FetchRequest(
        topics=topics, min_bytes=min_bytes, max_wait_ms=max_wait_ms, max_bytes=max_bytes
    )


@pytest.mark.parametrize("topic", ["t", "u"])
async def test_long_poll_ends_with_data_of_any_of_its_partitions(cluster: DataCluster, topic: str) -> None:
    for name in ("t", "u"):
        await cluster.create(1, topic=name)
    producer, consumer = await cluster.client(1), await cluster.client(1)
    waiters = present(cluster.brokers[1].table.find(topic, 0)).consumer_waiters
    consumer.send(fetch_both(0, max_wait_ms=600_000, min_bytes=1), 12)
    async with asyncio.timeout(10):
        while not cluster.brokers[1].data.wakeups.deadlines:
            await asyncio.sleep(0.002)
        await producer.produce(make_batch(b"v"), topic=topic)
        response = await consumer.receive()
    found = {t.topic: values_in(t.partitions[0].records) for t in response.responses}
    assert found[topic] == [b"v"]
    assert not waiters


async def test_long_poll_ends_with_as_many_bytes_as_it_asks_for(cluster: DataCluster) -> None:
    await cluster.create(1)
    producer, consumer = await cluster.client(1), await cluster.client(1)
    batch = make_batch(b"v")
    consumer.send_fetch(0, max_wait_ms=600_000, min_bytes=2 * len(batch))
    await until(lambda: cluster.partition(1).consumer_waiters)
    for _ in range(2):
        await producer.produce(batch)
    async with asyncio.timeout(10):
        assert values_in((await consumer.fetched()).records) == [b"v", b"v"]


async def test_limit_of_an_answer_applies_to_all_its_partitions_together(cluster: DataCluster) -> None:
    """The first partition gets a whole batch however small the limit is; the others share the rest."""
    client, batch = None, make_batch(b"v" * 100)
    for topic in ("t", "u"):
        await cluster.create(1, topic=topic)
        client = client or await cluster.client(1)
        for _ in range(3):
            await client.produce(batch, topic=topic)
    assert client is not None
    for limit, expected in (
        (1, [len(batch), 0]),
        (3 * len(batch), [3 * len(batch), 0]),
        (3 * len(batch) + 1, [3 * len(batch), 1]),
        (4 * len(batch), [3 * len(batch), len(batch)]),
    ):
        client.send(fetch_both(0, max_bytes=limit, min_bytes=1), 12)
        response = await client.receive()
        assert [len(t.partitions[0].records or b"") for t in response.responses] == expected
