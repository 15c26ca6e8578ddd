"""Reads what was written as others would: topics with confluent-kafka, Parquet with Spark's own reader."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pykraft.jepsen_like.faults.spark_rounds.findings import Copy, Record
from pykraft.testing.processes.waits import Deadline, WaitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ_TIMEOUT_S: Final = 120.0


def source_records(servers: str, topic: str, partitions: int) -> list[Record]:
    return [
        Record(partition, offset, int(value))
        for partition, offset, value in _committed(servers, topic, partitions)
    ]


def sink_copies(servers: str, topic: str, partitions: int) -> list[Copy]:
    """In the order of each partition."""
    return [
        Copy(partition, Record(*map(int, value.split(b":"))))
        for partition, _, value in _committed(servers, topic, partitions)
    ]


def parquet_records(session: SparkSession, directory: Path) -> list[Record]:
    if not (directory / "_spark_metadata").is_dir():
        return []
    table = session.read.schema("partition int, offset bigint, number bigint").parquet(str(directory))
    columns = table.toArrow().to_pydict()
    return list(map(Record, columns["partition"], columns["offset"], columns["number"]))


def _committed(servers: str, topic: str, partitions: int) -> Iterator[tuple[int, int, bytes]]:
    """Partition, offset and value of everything up to the ends of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    deadline = Deadline(_READ_TIMEOUT_S)
    unread = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        while unread:
            if deadline.passed:
                raise WaitError(f"{topic} was not read to its end: partitions {sorted(unread)} are left")
            yield from _records(consumer.consume(10_000, 0.5), unread)
    finally:
        consumer.close()


def _records(messages: Sequence[Message], unread: set[int]) -> Iterator[tuple[int, int, bytes]]:
    for message in messages:
        partition, offset, value, error = (
            message.partition(),
            message.offset(),
            message.value(),
            message.error(),
        )
        assert partition is not None
        if error is None:
            assert offset is not None and value is not None
            yield partition, offset, value
        elif error.code() == KafkaError._PARTITION_EOF:
            unread.discard(partition)
        else:
            raise KafkaException(error)
