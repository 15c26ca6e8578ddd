"""kafka-python: transactions are read whole or not at all, newer producers fence, offsets belong to them."""

import warnings
from collections.abc import Callable
from contextlib import closing

import pytest

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline

with warnings.catch_warnings():
    # It reads its message definitions by a function that Python 3.11 deprecated and 3.13 restored.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import ProducerFencedError
    from kafka.structs import OffsetAndMetadata

pytestmark = [
    pytest.mark.interop,
    # It leaves sockets of its closed loop to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NewTopic = Callable[..., str]
PARTITIONS = 3


def start_producer(cluster: Cluster, transactional_id: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def send(producer: KafkaProducer, topic: str, value: bytes) -> None:
    """One record to every partition, and all of them have arrived."""
    sent = [producer.send(topic, value, partition=partition) for partition in range(PARTITIONS)]
    for future in sent:
        future.get(PATIENCE_S)


def read(cluster: Cluster, topic: str, isolation: str, count: int) -> list[list[bytes]]:
    """The values of each partition up to its end, which is awaited until there are ``count`` in all."""
    everything = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: list[list[bytes]] = [[] for _ in everything]
    deadline = Deadline(PATIENCE_S)
    with closing(
        KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level=isolation,
        )
    ) as consumer:
        consumer.assign(everything)
        while True:
            assert not deadline.passed, found
            for partition, records in consumer.poll(timeout_ms=50).items():
                found[partition.partition].extend(record.value for record in records)
            ends = consumer.end_offsets(everything)
            positions = {partition: consumer.position(partition) for partition in everything}
            if sum(map(len, found)) >= count and positions == ends:
                return found


@pytest.mark.shows("kafka-python", "transactions")
def test_committed_records_are_read_and_aborted_ones_are_not(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)
    with closing(start_producer(trio, topic)) as producer:
        for number in range(5):
            producer.begin_transaction()
            send(producer, topic, b"%d" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert read(trio, topic, "read_committed", 3 * PARTITIONS) == [[b"0", b"2", b"4"]] * PARTITIONS
    everything = [b"%d" % number for number in range(5)]
    assert read(trio, topic, "read_uncommitted", 5 * PARTITIONS) == [everything] * PARTITIONS


def test_second_producer_aborts_and_fences_the_first(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)
    with closing(start_producer(trio, topic)) as old:
        old.begin_transaction()
        send(old, topic, b"old")
        assert read(trio, topic, "read_committed", 0) == [[]] * PARTITIONS
        with closing(start_producer(trio, topic)) as new:
            new.begin_transaction()
            send(new, topic, b"new")
            new.commit_transaction()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
    assert read(trio, topic, "read_committed", PARTITIONS) == [[b"new"]] * PARTITIONS
    assert read(trio, topic, "read_uncommitted", 2 * PARTITIONS) == [[b"old", b"new"]] * PARTITIONS


def test_records_that_are_read_and_processed_are_written_once(trio: Cluster, new_topic: NewTopic) -> None:
    """Offsets of an aborted transaction do not count: whoever reads next processes the same records."""
    source, sink = new_topic(PARTITIONS), new_topic(PARTITIONS)
    everything = [TopicPartition(source, partition) for partition in range(PARTITIONS)]

    def process(producer: KafkaProducer, *, commits: bool) -> list[int | None]:
        """Take all records of the source to the sink; the offsets that the group has afterwards."""
        deadline = Deadline(PATIENCE_S)
        with closing(
            KafkaConsumer(
                source,
                bootstrap_servers=trio.bootstrap_servers,
                group_id=source,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        ) as consumer:
            producer.begin_transaction()
            ends: dict[TopicPartition, OffsetAndMetadata] = {}
            while len(ends) < PARTITIONS:
                assert not deadline.passed, ends
                # A poll that ends while it joins its group makes it join again.
                for partition, records in consumer.poll(timeout_ms=1000).items():
                    for record in records:
                        producer.send(sink, record.value, partition=partition.partition)
                    ends[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            # A new transaction begins when the markers of the one before are written.
            producer.begin_transaction()
            send(producer, sink, b"end")
            producer.commit_transaction()
            return [consumer.committed(partition) for partition in everything]

    with closing(start_producer(trio, f"{source}-input")) as producer:
        producer.begin_transaction()
        send(producer, source, b"input")
        producer.commit_transaction()
    with closing(start_producer(trio, source)) as producer:
        assert process(producer, commits=False) == [None] * PARTITIONS
        assert process(producer, commits=True) == [1] * PARTITIONS
    written = read(trio, sink, "read_committed", 3 * PARTITIONS)
    assert written == [[b"end", b"input", b"end"]] * PARTITIONS
