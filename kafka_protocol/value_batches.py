"""Batches that hold values only: no keys, no headers, one timestamp, no compression.

The metadata log and its snapshots consist of such batches. The bytes are those of :mod:`.record_codec`; here
they are written and read in one pass without an object per record, several times faster. Batches of any other
form are left to :mod:`.record_codec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.primitives import write_varint
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader

_HEAD = b"\0\0"  # attributes, timestamp delta


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_MOST_VARINTS = 8192
_VARINTS = [_varint(value) for value in range(256)]
"""Those of the first numbers; as many as the longest batch so far has values."""


def encode_values(
    values: Sequence[bytes], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """One whole batch with a valid CRC, of at least one value."""
    assert values, "a batch holds at least one record"
    varints = _VARINTS
    if len(varints) < min(len(values), _MOST_VARINTS):
        two_bytes = range(len(varints), _MOST_VARINTS)
        varints.extend([bytes((value << 1 & 127 | 128, value >> 6)) for value in two_bytes])
    known = len(varints)
    parts = []
    size_bytes = records.HEADER_BYTES
    for index, value in enumerate(values):
        length = len(value)
        delta = varints[index] if index < known else _varint(index)
        value_length = varints[length] if length < known else _varint(length)
        record_bytes = 4 + len(delta) + len(value_length) + length
        head = varints[record_bytes] if record_bytes < known else _varint(record_bytes)
        parts.append(b"%b\0\0%b\1%b%b\0" % (head, delta, value_length, value))
        size_bytes += len(head) + record_bytes
    out = bytearray(records.HEADER_BYTES)
    out += b"".join(parts)
    records.HEADER.pack_into(
        out,
        0,
        base_offset,
        size_bytes - records.LOG_OVERHEAD_BYTES,
        leader_epoch,
        records.MAGIC,
        0,
        Compression.NONE,
        len(values) - 1,
        timestamp_ms,
        timestamp_ms,
        records.NO_PRODUCER_ID,
        records.NO_PRODUCER_EPOCH,
        records.NO_SEQUENCE,
        len(values),
    )
    records.write_crc(out, 0, len(out))
    return bytes(out)


def decode_values(batch: bytes, header: BatchHeader) -> tuple[bytes, ...]:
    """The values of the batch that ``batch`` starts with; errors as :func:`.decode_batch`."""
    found = None if header.attributes else _read_values(batch, header)
    if found is None:
        return tuple(record.value or b"" for record in decode_batch(batch, header))
    return tuple(found)


def _read_values(batch: bytes, header: BatchHeader) -> list[bytes] | None:
    """None if any record has another form, or a number of more than two bytes in its head. Offset deltas have
    three from 8192 on: they are in order, and so need not be read.
    """
    position, end = records.HEADER_BYTES, header.size_bytes
    if header.magic != records.MAGIC or header.record_count < 0 or not position <= end <= len(batch):
        return None
    found: list[bytes] = []
    try:
        for _ in range(header.record_count):
            n = batch[position]
            position += 1
            if n > 127:
                high = batch[position]
                if high > 127:
                    return None
                n += (high << 7) - 128
                position += 1
            record_end = position + (n >> 1)
            if n & 1 or batch[position : position + 2] != _HEAD:
                return None
            position += 2
            if batch[position] > 127:
                position += 1
                if batch[position] > 127:
                    position += 1
            if batch[position] > 127 or batch[position + 1] != 1:
                return None
            n = batch[position + 2]
            position += 3
            if n > 127:
                high = batch[position]
                if high > 127:
                    return None
                n += (high << 7) - 128
                position += 1
            stop = position + (n >> 1)
            if n & 1 or stop + 1 != record_end or batch[stop]:
                return None
            found.append(batch[position:stop])
            position = record_end
    except IndexError:
        return None
    return found if position == end else None
