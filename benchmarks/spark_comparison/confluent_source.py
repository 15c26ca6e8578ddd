"""A Spark source and sink over confluent-kafka, tuned: what a Python team would write without pykraft.

It is as fast as librdkafka makes it: its defaults would pause for a second whenever 100,000 messages are
queued, and read four to ten times slower. It plans from watermarks, reads whole ranges, and handles no
errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "confluent"
_AT_ONCE: Final = 10_000
_PATIENCE_S: Final = 60.0
_CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "benchmark",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 << 10,
    "fetch.message.max.bytes": 8 << 20,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 256 << 10,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 256 << 10,
}

Range = tuple[str, int, int, int]
"""Topic, partition, offsets from the first up to but not including the last."""
Offsets = dict[str, dict[str, int]]


class ConfluentSource(DataSource):
    """Options: ``kafka.bootstrap.servers``, ``subscribe`` (one topic), ``maxOffsetsPerTrigger``; of writes
    ``topic`` and ``kafka.compression.type``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from pykraft.spark.columns import column_names, spark_schema

        return spark_schema(column_names(False))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(dict(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer(dict(self.options))


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers = options["kafka.bootstrap.servers"]
        self._topic = options.get("subscribe") or options["topic"]
        self._codec = options.get("kafka.compression.type", "none")
        self._most = options.get("maxoffsetspertrigger")  # Spark hands names over in lower case

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer({"bootstrap.servers": self._servers, **_CONSUMER})

    def _ends(self, *, last: bool) -> dict[str, int]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        found = consumer.list_topics(self._topic).topics[self._topic].partitions
        watermarks = {
            number: consumer.get_watermark_offsets(TopicPartition(self._topic, number))
            for number in sorted(found)
        }
        consumer.close()
        return {str(number): marks[last] for number, marks in watermarks.items()}

    def _read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition

        topic, partition, position, end = wanted
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, position)])
        while position < end:
            messages = consumer.consume(min(_AT_ONCE, end - position), _PATIENCE_S)
            if not messages or messages[0].error():
                raise RuntimeError(f"no records at offset {position} of {topic}-{partition}")
            position = messages[-1].offset() + 1
            yield _to_arrow(messages, topic, partition)
        consumer.close()


def _to_arrow(messages: list[Any], topic: str, partition: int) -> pa.RecordBatch:
    import pyarrow as pa

    from pykraft.spark.columns import COLUMNS, arrow_schema

    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([1000 * at_ms for _, at_ms in stamps], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(COLUMNS))


class BatchReader(_Options, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        first, last = self._ends(last=False), self._ends(last=True)
        return [InputPartition((self._topic, int(one), first[one], last[one])) for one in last]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition.value)


class StreamReader(_Options, DataSourceStreamReader, SupportsTriggerAvailableNow):
    _target: dict[str, int] | None = None

    def initialOffset(self) -> Offsets:
        return {self._topic: self._ends(last=False)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(int(self._most))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(last=True)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        target = self._target if self._target is not None else self._ends(last=True)
        if self._most is None:
            return {self._topic: target}
        share = -(-int(self._most) // len(target))
        begun = start[self._topic]
        return {self._topic: {one: min(end, begun[one] + share) for one, end in target.items()}}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        first, last = start[self._topic], end[self._topic]
        return [
            InputPartition((self._topic, int(one), first[one], last[one]))
            for one in last
            if first[one] < last[one]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition.value)


class Writer(_Options, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self._servers, "compression.type": self._codec, **_PRODUCER}
        )
        failed: list[Any] = []

        def done(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for batch in iterator:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                while True:
                    try:
                        producer.produce(self._topic, value, key, on_delivery=done)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
        producer.flush()
        if failed:
            raise RuntimeError(json.dumps([str(error) for error in failed[:3]]))
        return WriterCommitMessage()
