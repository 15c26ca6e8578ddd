"""A record batch that grows record by record, for a coordinator that writes what several requests decided.

Records are encoded once, into the buffer that is written to the log. All have the time of the batch and no
headers; the batch may be part of a transaction, without a sequence. The layout is that of
:mod:`pykraft.kafka_protocol.record_codec`. What was added last can be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.primitives import write_varint
from pykraft.kafka_protocol.record_codec import decode_batch

NO_HEADERS = b"\0"
"""The end of a record without headers."""


Producer: TypeAlias = tuple[int, int]
"""The id and the epoch of a producer."""

_NO_PRODUCER = (records.NO_PRODUCER_ID, records.NO_PRODUCER_EPOCH)


class Mark(NamedTuple):
    """A place in a batch to which it can be cut back."""

    size_bytes: int
    record_count: int


class BatchBuilder:
    """Also the sequence of the keys and values in it, which are decoded when they are asked for."""

    __slots__ = ("body", "producer", "record_count")

    def __init__(self, producer: Producer | None = None) -> None:
        """``producer``: whose transaction the batch is part of, if it is."""
        self.producer = producer
        self.body = bytearray(records.HEADER_BYTES)
        self.record_count = 0

    def __len__(self) -> int:
        return self.record_count

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        for record in decode_batch(self.build(-1, 0)) if self.record_count else ():
            assert record.key is not None, "records of coordinators have keys"
            yield record.key, record.value

    @property
    def size_bytes(self) -> int:
        """The size of the batch, header included."""
        return len(self.body)

    @property
    def mark(self) -> Mark:
        return Mark(len(self.body), self.record_count)

    def cut(self, mark: Mark) -> None:
        """Take back what was added since ``mark``."""
        del self.body[mark.size_bytes :]
        self.record_count = mark.record_count

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add one record; a value of None is a tombstone."""
        record = bytearray(2)  # attributes, timestamp delta
        write_varint(record, self.record_count)
        write_varint(record, len(key))
        record += key
        if value is None:
            record.append(1)
        else:
            write_varint(record, len(value))
            record += value
        record += NO_HEADERS
        write_varint(self.body, len(record))
        self.body += record
        self.record_count += 1

    def add_encoded(self, encoded: bytes | bytearray, record_count: int) -> None:
        """Add whole records whose offset deltas continue those of this batch."""
        self.body += encoded
        self.record_count += record_count

    def add_batch(self, other: BatchBuilder) -> None:
        """Add all records of another batch to this one, which is empty."""
        assert not self.record_count, "the offset deltas of the other begin with 0"
        self.add_encoded(other.body[records.HEADER_BYTES :], other.record_count)

    def build(self, leader_epoch: int, timestamp_ms: int) -> bytearray:
        """The whole batch, with a valid CRC; it shares its memory with this builder."""
        assert self.record_count, "a batch holds at least one record"
        producer_id, producer_epoch = self.producer or _NO_PRODUCER
        records.HEADER.pack_into(
            self.body,
            0,
            0,
            len(self.body) - records.LOG_OVERHEAD_BYTES,
            leader_epoch,
            records.MAGIC,
            0,
            0 if self.producer is None else records.TRANSACTIONAL_BIT,
            self.record_count - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            records.NO_SEQUENCE,
            self.record_count,
        )
        records.write_crc(self.body, 0, len(self.body))
        return self.body
