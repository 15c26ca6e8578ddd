"""Where the records of a batch are: for compaction, which keeps or drops records and copies their bytes.

A record that is kept is copied as it is, and only a new base timestamp changes it. So records are located
here and not decoded, except for their keys. The layout is that of ``record_codec``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from pykraft.kafka_protocol.primitives import read_uvarint_tail, read_varint, read_varlong, write_varint
from pykraft.kafka_protocol.record_codec import check_record_count, corrupt_batch


class RecordSpan(NamedTuple):
    """The bytes of one record, ``start`` to ``end``, its length included.

    ``rest``: what follows its timestamp delta. ``is_tombstone``: it has no value.
    """

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def iter_spans(body: bytes, record_count: int) -> Iterator[RecordSpan]:
    """The records of a batch, decompressed.

    ``ProtocolError`` (CORRUPT_MESSAGE) unless ``body`` is exactly so many records.
    """
    check_record_count(body, record_count)
    try:
        position = yield from _iter_spans(body, record_count)
    except IndexError:
        raise corrupt_batch("the last record is cut short") from None
    if position != len(body):
        raise corrupt_batch("bytes follow the last record")


def _iter_spans(body: bytes, record_count: int) -> Generator[RecordSpan, None, int]:
    """The hot loop: the one-byte case of each varint is inlined, the others call a function."""
    new_span = tuple.__new__
    position = 0
    for _ in range(record_count):
        start = position
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        end = position + (n >> 1)
        if n & 1 or end > len(body):
            raise corrupt_batch("a record is cut short")
        position += 1  # the record's attributes: unused
        n = body[position]
        if n > 127:
            timestamp_delta, position = read_varlong(body, position)
        else:
            timestamp_delta = (n >> 1) ^ -(n & 1)
            position += 1
        rest = position
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        offset_delta = (n >> 1) ^ -(n & 1)
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        key = None
        if n & 1 == 0:
            stop = position + (n >> 1)
            key = body[position:stop]
            position = stop
        elif n != 1:
            raise corrupt_batch("a key of negative length")
        length, position = read_varint(body, position)
        if length < -1 or position + max(length, 0) > end:
            raise corrupt_batch("a value reaches past its record")
        yield new_span(RecordSpan, (start, rest, end, timestamp_delta, offset_delta, key, length < 0))
        position = end
    return position


def write_record(out: bytearray, timestamp_delta: int, rest: bytes) -> None:
    """Append a record with another timestamp delta than the one before ``rest``."""
    head = bytearray(1)  # the record's attributes
    write_varint(head, timestamp_delta)
    write_varint(out, len(head) + len(rest))
    out += head
    out += rest
