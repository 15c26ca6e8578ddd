"""aiokafka: transactions are read whole or not at all, newer producers fence, offsets belong to them."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
PARTITIONS = 3


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


def make_producer(cluster: Cluster, transactional_id: str) -> AIOKafkaProducer:
    """Entering it starts it."""
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id)


async def send(producer: AIOKafkaProducer, topic: str, value: bytes) -> None:
    """One record to every partition, and all of them have arrived."""
    sent = [await producer.send(topic, value, partition=partition) for partition in range(PARTITIONS)]
    for future in sent:
        await future


async def read(cluster: Cluster, topic: str, isolation: str, count: int) -> list[list[bytes]]:
    """The values of each partition up to its end, which is awaited until there are ``count`` in all."""
    everything = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: list[list[bytes]] = [[] for _ in everything]
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        consumer.assign(everything)
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                found[partition.partition].extend(record.value for record in records)
            ends = await consumer.end_offsets(everything)
            positions = {partition: await consumer.position(partition) for partition in everything}
            if sum(map(len, found)) >= count and positions == ends:
                return found


@pytest.mark.shows("aiokafka", "transactions")
def test_committed_records_are_read_and_aborted_ones_are_not(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)

    async def scenario() -> None:
        async with make_producer(trio, topic) as producer:
            for number in range(5):
                await producer.begin_transaction()
                await send(producer, topic, b"%d" % number)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        committed = await read(trio, topic, "read_committed", 3 * PARTITIONS)
        assert committed == [[b"0", b"2", b"4"]] * PARTITIONS
        everything = await read(trio, topic, "read_uncommitted", 5 * PARTITIONS)
        assert everything == [[b"%d" % number for number in range(5)]] * PARTITIONS

    run(scenario())


def test_second_producer_aborts_and_fences_the_first(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)

    async def scenario() -> None:
        async with make_producer(trio, topic) as old:
            await old.begin_transaction()
            await send(old, topic, b"old")
            assert await read(trio, topic, "read_committed", 0) == [[]] * PARTITIONS
            async with make_producer(trio, topic) as new, new.transaction():
                await send(new, topic, b"new")
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
        assert await read(trio, topic, "read_committed", PARTITIONS) == [[b"new"]] * PARTITIONS
        everything = await read(trio, topic, "read_uncommitted", 2 * PARTITIONS)
        assert everything == [[b"old", b"new"]] * PARTITIONS

    run(scenario())


def test_records_that_are_read_and_processed_are_written_once(trio: Cluster, new_topic: NewTopic) -> None:
    """Offsets of an aborted transaction do not count: whoever reads next processes the same records."""
    source, sink = new_topic(PARTITIONS), new_topic(PARTITIONS)
    everything = [TopicPartition(source, partition) for partition in range(PARTITIONS)]

    async def process(producer: AIOKafkaProducer, *, commits: bool) -> list[int | None]:
        """Take all records of the source to the sink; the offsets that the group has afterwards."""
        async with AIOKafkaConsumer(
            source,
            bootstrap_servers=trio.bootstrap_servers,
            group_id=source,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            await producer.begin_transaction()
            ends: dict[TopicPartition, int] = {}
            while len(ends) < PARTITIONS:
                for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                    for record in records:
                        await producer.send(sink, record.value, partition=partition.partition)
                    ends[partition] = records[-1].offset + 1
            await producer.send_offsets_to_transaction(ends, source)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
            # A new transaction begins when the markers of the one before are written.
            async with producer.transaction():
                await send(producer, sink, b"end")
            return [await consumer.committed(partition) for partition in everything]

    async def scenario() -> None:
        async with make_producer(trio, f"{source}-input") as producer, producer.transaction():
            await send(producer, source, b"input")
        async with make_producer(trio, source) as producer:
            assert await process(producer, commits=False) == [None] * PARTITIONS
            assert await process(producer, commits=True) == [1] * PARTITIONS
        written = await read(trio, sink, "read_committed", 3 * PARTITIONS)
        assert written == [[b"end", b"input", b"end"]] * PARTITIONS

    run(scenario())
