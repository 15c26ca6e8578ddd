"""RecordBatch v2: the 61-byte header, all that brokers read of a batch once it is in a log.

Brokers and followers move batches as opaque bytes. They read this header, check the CRC, and write the base
offset and the leader epoch in place: both precede the bytes that the CRC covers. Stamping the append time
changes the attributes and the maximum timestamp, and with them the CRC. A client's batch is walked once
before it enters a log (``record_walk``); decoding its records is left to ``record_codec`` and never happens
on the data path.

All fields are big endian. The length counts what follows it: 12 bytes less than the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.crc import crc32c
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError
from pykraft.lazy_dataclass import dataclass

_LAYOUT = {
    "base_offset": "q",
    "batch_length": "i",
    "partition_leader_epoch": "i",
    "magic": "b",
    "crc": "I",
    "attributes": "h",
    "last_offset_delta": "i",
    "base_timestamp": "q",
    "max_timestamp": "q",
    "producer_id": "q",
    "producer_epoch": "h",
    "base_sequence": "i",
    "record_count": "i",
}
"""The fields of the header in their order, with their ``struct`` formats."""


def _position(field: str) -> int:
    """The position of a field in the header."""
    names = list(_LAYOUT)
    return struct.calcsize(">" + "".join(_LAYOUT[name] for name in names[: names.index(field)]))


HEADER = struct.Struct(">" + "".join(_LAYOUT.values()))
HEADER_BYTES = HEADER.size
MAGIC = 2

LOG_OVERHEAD_BYTES = _position("partition_leader_epoch")
"""Base offset and length: the fields before the bytes that the length counts."""

CRC_OFFSET = _position("crc")
CRC_START = _position("attributes")
"""The CRC covers everything from the attributes to the end of the batch."""

ATTRIBUTES_OFFSET = _position("attributes")
MAX_TIMESTAMP_OFFSET = _position("max_timestamp")

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""Compaction has set ``base_timestamp`` to the time from which it removes the batch's tombstones."""
CLIENT_BITS = COMPRESSION_MASK | TRANSACTIONAL_BIT
"""The attributes that a producer may set."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

LEAST_TIMESTAMP, GREATEST_TIMESTAMP = -(1 << 63), (1 << 63) - 1
"""The range of 64 bits."""

_SEQUENCE_MASK = 0x7FFFFFFF
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_EPOCH_OFFSET = _position("partition_leader_epoch")
_LENGTH_OFFSET = _position("batch_length")
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES


_CODECS = tuple(Compression)
"""By their numbers."""


@dataclass(slots=True)  # not frozen: one is made of each batch, and frozen ones take three times as long
class BatchHeader:
    """The header of one batch, as it is encoded. Nobody changes one."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record; it stays the same when compaction removes that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch (exclusive end)."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: wraps from 2**31 - 1 to 0; -1 without a producer id."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    def placed(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """The header once :func:`assign_offset` has written these: the CRC covers neither."""
        return BatchHeader(
            base_offset,
            self.batch_length,
            leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def packed(self) -> bytes:
        """As it is encoded."""
        return HEADER.pack(
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    @property
    def compression(self) -> Compression:
        """The codec of the records. :class:`ProtocolError` for the three numbers that name no codec."""
        codec = self.attributes & COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise ProtocolError(f"unknown compression codec {codec}", ErrorCode.CORRUPT_MESSAGE)
        return _CODECS[codec]

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records (transaction markers, quorum records)."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records carry the time of the append (``max_timestamp``), not their own."""
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the tombstones of this batch; None if it has not been decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def timestamp_of(base_timestamp: int, delta: int) -> int:
    """The time of a record. The sum wraps, as that of Kafka does: where its compaction has set a delete
    horizon, records of very early times have deltas that rely on it.
    """
    timestamp_ms = base_timestamp + delta
    if LEAST_TIMESTAMP <= timestamp_ms <= GREATEST_TIMESTAMP:
        return timestamp_ms
    return (timestamp_ms - LEAST_TIMESTAMP) % (1 << 64) + LEAST_TIMESTAMP


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``. Checks nothing but that 61 bytes are there."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise ProtocolError("truncated record batch header", ErrorCode.CORRUPT_MESSAGE)
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; a partial batch at the end is skipped.

    :class:`ProtocolError` (CORRUPT_MESSAGE) for a length too small to hold a header: no batch after it can be
    found.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.batch_length < _MIN_LENGTH:
            raise ProtocolError(
                f"record batch of {header.batch_length} bytes at position {position}",
                ErrorCode.CORRUPT_MESSAGE,
            )
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes


def assign_offset(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``position``. The CRC stays valid."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_OFFSET, leader_epoch)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Write the maximum timestamp of the batch at ``position``, and compute its CRC again."""
    (length,) = _EPOCH.unpack_from(buffer, position + _LENGTH_OFFSET)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_OFFSET, timestamp_ms)
    write_crc(buffer, position, length + LOG_OVERHEAD_BYTES)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamp the batch at ``position`` with the time of its append, and compute its CRC again."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_OFFSET)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_OFFSET, attributes | TIMESTAMP_TYPE_BIT)
    set_max_timestamp(buffer, position, timestamp_ms)


def replace_records(header: BatchHeader, payload: Buffer, codec: Compression) -> bytearray:
    """A batch of ``payload`` with the same header except for codec, length and CRC."""
    out = bytearray(HEADER_BYTES + len(payload))
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    length = len(out) - LOG_OVERHEAD_BYTES
    out[:HEADER_BYTES] = replace(header, batch_length=length, attributes=attributes).packed()
    out[HEADER_BYTES:] = payload
    write_crc(out, 0, len(out))
    return out


def write_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute the CRC of the batch of ``size_bytes`` at ``position`` and write it."""
    _CRC.pack_into(buffer, position + CRC_OFFSET, _checksum(buffer, position, size_bytes))


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch at ``position`` is whole and its bytes match the CRC in ``header``."""
    size = header.size_bytes
    if size < HEADER_BYTES or size > len(buffer) - position:
        return False
    return _checksum(buffer, position, size) == header.crc


def _checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    return int(crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes]))
