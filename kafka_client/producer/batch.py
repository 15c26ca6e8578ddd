"""A producer's batches: records that are sent together and have one outcome.

A batch knows whether a request may have written it. It gets its sequence when it is first sent and keeps it
through every retry; only a batch that is certainly not in the log may get another (KIP-98).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import NamedTuple

from pykraft.kafka_client.errors import MaybeWrittenError, NotWrittenError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Future
from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import EncodedRecords, RecordInput, encode_records, seal_batch
from pykraft.lazy_dataclass import dataclass

ACKS_ALL = -1
MAX_IDEMPOTENT_IN_FLIGHT = 5
"""Brokers remember this many batches of a producer and recognise no older duplicate."""

_RECORD_OVERHEAD_BYTES = 32
_RECORD_HEADER_OVERHEAD_BYTES = 10
_LARGEST_TIMESTAMP_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Kafka's names, with the unit at the end, and defaults. :class:`ValueError` for a contradiction.

    The order of a partition's records is always kept: without idempotence one batch of a partition is in
    flight at a time.
    """

    acks: int = ACKS_ALL
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: int = MAX_IDEMPOTENT_IN_FLIGHT
    linger_ms: int = 5
    batch_size_bytes: int = 16_384
    buffer_memory_bytes: int = 32 << 20
    max_request_size_bytes: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    compression: Compression = Compression.NONE

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, not {self.acks}")
        if self.max_in_flight_requests_per_connection < 1:
            raise ValueError("max.in.flight.requests.per.connection must be at least 1")
        if self.enable_idempotence and self.acks != ACKS_ALL:
            raise ValueError("enable.idempotence needs acks=all")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > MAX_IDEMPOTENT_IN_FLIGHT:
            raise ValueError(
                f"enable.idempotence allows {MAX_IDEMPOTENT_IN_FLIGHT} requests in flight per connection"
            )

    @property
    def max_in_flight_per_partition(self) -> int:
        return self.max_in_flight_requests_per_connection if self.enable_idempotence else 1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is. ``offset`` None: the broker did not return it (acks=0, or a duplicate that it no
    longer remembers). ``timestamp_ms`` is the time of the append if the topic is configured so, else the
    record's own.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int


class BatchSequence(NamedTuple):
    """The fields by which a broker recognises a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


NO_SEQUENCE = BatchSequence(records.NO_PRODUCER_ID, records.NO_PRODUCER_EPOCH, records.NO_SEQUENCE)


class ProducerBatch:
    """Records of one partition, written together or not at all. ``order`` numbers the partition's batches."""

    __slots__ = (
        "_content",
        "_encoded",
        "attempts",
        "created_ms",
        "futures",
        "is_closed",
        "is_transactional",
        "last_error",
        "maybe_written",
        "on_done",
        "order",
        "partition",
        "records",
        "retry_at_ms",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        order: int,
        created_ms: int,
        on_done: Callable[[ProducerBatch], None],
        is_transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.order = order
        self.created_ms = created_ms
        self.on_done = on_done
        self.is_transactional = is_transactional
        self.records: list[RecordInput] = []
        self.futures: list[Future[RecordMetadata]] = []
        self.size_bytes = records.HEADER_BYTES
        self.is_closed = False
        self.sequence: BatchSequence | None = None
        self.maybe_written = False
        self.attempts = 0
        self.retry_at_ms = created_ms
        self.last_error: KafkaError | None = None
        self._content: EncodedRecords | None = None
        self._encoded: bytes | None = None

    @property
    def record_count(self) -> int:
        return len(self.records) if self._content is None else self._content.record_count

    @property
    def is_done(self) -> bool:
        return not self.futures

    @property
    def records_bytes(self) -> int:
        """The size in bytes of each record when it was appended."""
        return self.size_bytes - records.HEADER_BYTES

    def append(self, record: RecordInput, size_bytes: int, future: Future[RecordMetadata]) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size_bytes += size_bytes

    def take_encoded(self, content: EncodedRecords, future: Future[RecordMetadata]) -> None:
        """Consist of these records, with one future for all: that of the first."""
        self._content = content
        self.futures.append(future)
        self.size_bytes += len(content.body)
        self.is_closed = True

    def encode(self, compression: Compression) -> bytes:
        """The bytes of the batch; the same ones at every retry."""
        if self._encoded is None:
            assert self.sequence is not None, "a batch is given its sequence before it is sent"
            producer_id, producer_epoch, base_sequence = self.sequence
            self._encoded = seal_batch(
                self._content or encode_records(self.records),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                compression=compression,
                is_transactional=self.is_transactional,
            )
        return self._encoded

    def forget_sequence(self) -> None:
        """Reset the batch to one that was never sent. Only if it is certainly not in the log."""
        assert not self.maybe_written, "a batch that may be written keeps its sequence"
        self.sequence = self._encoded = None

    def complete(self, base_offset: int | None, log_append_time_ms: int = -1) -> None:
        futures, self.futures = self.futures, []
        for index, future in enumerate(futures):
            if future.done():
                continue  # its task was cancelled
            offset = None if base_offset is None else base_offset + index
            timestamp_ms = log_append_time_ms if log_append_time_ms >= 0 else self._timestamp_ms(index)
            future.set_result(
                RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp_ms)
            )
        self.on_done(self)

    def _timestamp_ms(self, index: int) -> int:
        return self.records[index].timestamp_ms if self._content is None else self._content.base_timestamp_ms

    def fail(self, error: KafkaError) -> None:
        """Give up: MaybeWrittenError if a request may have written it, else :class:`NotWrittenError`."""
        kind = MaybeWrittenError if self.maybe_written else NotWrittenError
        futures, self.futures = self.futures, []
        for future in futures:
            if not future.done():
                future.set_exception(kind(error.code, f"{self.partition}: {error.message}"))
        self.on_done(self)


def check_record(record: RecordInput) -> None:
    """:class:`TypeError` or :class:`ValueError` for what cannot be encoded.

    The sender is told: later, where batches are encoded, nobody would hear of it, and the records that
    share its batch would be lost with it.
    """
    for what, data in (("key", record.key), ("value", record.value)):
        _check_bytes(what, data)
    for name, data in record.headers:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is text, not {_described(name)}")
        name.encode()  # half of a surrogate pair is no text
        _check_bytes(f"header {name!r}", data)
    if not isinstance(record.timestamp_ms, int):
        raise TypeError(f"a timestamp is a whole number of ms, not {_described(record.timestamp_ms)}")
    if not records.NO_TIMESTAMP <= record.timestamp_ms <= _LARGEST_TIMESTAMP_MS:
        raise ValueError(f"a timestamp is 0 to 2^63 - 1 ms, not {record.timestamp_ms}")


def check_place(topic: str, partition: int | None) -> None:
    """The same for where a record is to be."""
    if not isinstance(topic, str):
        raise TypeError(f"the name of a topic is text, not {_described(topic)}")
    topic.encode()
    if partition is not None and not isinstance(partition, int):
        raise TypeError(f"a partition is a whole number, not {_described(partition)}")
    if partition is not None and partition < 0:
        raise ValueError(f"a partition is 0 or more, not {partition}")


def _check_bytes(what: str, data: object) -> None:
    if data is None or isinstance(data, bytes | bytearray):
        return
    if not isinstance(data, memoryview) or data.itemsize != 1 or data.ndim != 1:
        raise TypeError(f"the {what} of a record is bytes or None, not {_described(data)}")


def _described(given: object) -> str:
    return f"{reprlib.repr(given)} ({type(given).__name__})"


def record_size_bound(record: RecordInput) -> int:
    """An upper bound of the record's size in a batch that is not compressed."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _RECORD_HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size
