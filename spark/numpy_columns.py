"""The columns of records with numpy: the specification of ``_record_columns.c``, and what does without it.

A record's length can only be found by walking from record to record; what is inside of them is then decoded
as vectors, once for all batches, because on small batches the fixed cost of a vector operation would outweigh
its gain. Keys and values are never touched one by one: Arrow copies them out of the raw bytes by offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pykraft.kafka_protocol.primitives import ProtocolError, read_varint
from pykraft.spark.columns import HEADERS, arrow_schema
from pykraft.spark.record_columns import MalformedRecordsError, RecordColumns, Span, Wanted

Int64s = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_LONGEST_VARINT_BYTES = 10


def walk_records(body: bytes, position: int, end: int, begins: list[int]) -> int:
    """Append where each record between ``position`` and ``end`` begins; returns where the walk ended.

    It ends past ``end`` if the last record reaches beyond it. A negative length cannot stop the walk; it is
    found when the lengths are decoded. Positions past the buffer raise :class:`IndexError`, here and below.
    """
    append = begins.append
    while position < end:
        append(position)
        byte = body[position]
        if byte < 0x80:
            position += (byte >> 1) + 1
            continue
        second = body[position + 1]
        if second < 0x80:
            position += ((second << 6) | ((byte & 0x7F) >> 1)) + 2
            continue
        value, shift, at = byte & 0x7F, 0, position
        while byte >= 0x80:
            at += 1
            shift += 7
            byte = body[at]
            value |= (byte & 0x7F) << shift
        position = at + 1 + (value >> 1)
    return position


def read_varints(raw: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """(values, positions after them) of the zigzag varints at ``positions``."""
    byte = raw[positions]
    values = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    more: NDArray[Any] = np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * _LONGEST_VARINT_BYTES, 7):
        if not more.size:
            break
        byte = raw[behind[more]]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[byte >= 0x80]
    else:
        if more.size:
            raise IndexError("a varint of more than ten bytes")
    one = np.uint64(1)
    return (values >> one).view(np.int64) ^ -(values & one).view(np.int64), behind


def read_with_numpy(spans: Sequence[Span], wanted: Wanted) -> RecordColumns:
    """:class:`MalformedRecordsError` for records that do not fill their batch, or contradict themselves."""
    body = b"".join(bytes(span.data[span.start : span.end]) for span in spans)
    begins: list[int] = []
    counts, ends = [], []
    at = 0
    for number, span in enumerate(spans):
        before, end = len(begins), at + span.end - span.start
        try:
            reached = walk_records(body, at, end, begins)
        except IndexError:
            raise MalformedRecordsError(number, "a record is malformed") from None
        if reached != end or len(begins) - before != span.header.record_count:
            raise MalformedRecordsError(number, "its records do not fill it")
        counts.append(len(begins) - before)
        ends.append(end)
        at = end
    try:
        fields = _fields(body, begins, spans, ends, np.array(counts, np.int64))
    except (IndexError, _MalformedError):
        raise MalformedRecordsError(0, "a record in it or in one of the next batches is malformed") from None
    keep = (fields.offsets >= wanted.start) & (fields.offsets < wanted.end)
    if not keep.all():
        fields = fields.filtered(np.flatnonzero(keep))
    return _assemble(body, fields, wanted)


class _MalformedError(Exception):
    """A record whose lengths contradict each other."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """One entry per record: its numbers, and the positions of its bytes. A length of -1 is null."""

    offsets: Int64s
    timestamps_ms: Int64s
    timestamp_types: NDArray[np.int32]
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s
    header_starts: Int64s
    header_counts: Int64s
    stops: Int64s

    def filtered(self, keep: NDArray[Any]) -> _Fields:
        return _Fields(*(getattr(self, name)[keep] for name in self.__slots__))


def _fields(
    body: bytes, begins: list[int], spans: Sequence[Span], ends: list[int], counts: Int64s
) -> _Fields:
    raw: Bytes = np.frombuffer(body, np.uint8)
    lengths, starts = read_varints(raw, np.array(begins, np.int64))
    stops = starts + lengths
    # The walk treated every length as positive; a negative one, or one truncated to 64 bits, ends elsewhere.
    last_of_batch = np.cumsum(counts)[counts > 0] - 1
    due = np.empty_like(stops)
    due[:-1] = np.array(begins[1:], np.int64)
    due[last_of_batch] = np.array(ends, np.int64)[counts > 0]
    _require(bool((stops == due).all()))

    timestamp_deltas, at = read_varints(raw, starts + 1)
    offset_deltas, at = read_varints(raw, at)
    key_lengths, key_starts = read_varints(raw, at)
    at = _behind(key_starts, key_lengths, stops)
    value_lengths, value_starts = read_varints(raw, at)
    at = _behind(value_starts, value_lengths, stops)
    header_counts, header_starts = read_varints(raw, at)
    _require(bool((header_counts >= 0).all() and (header_starts <= stops).all()))
    _require(bool((header_starts == stops)[header_counts == 0].all()))

    headers = [span.header for span in spans]
    append_time = _per_record([header.is_log_append_time for header in headers], counts, np.bool_)
    base_offsets = _per_record([header.base_offset for header in headers], counts, np.int64)
    base_timestamps = _per_record([header.base_timestamp for header in headers], counts, np.int64)
    max_timestamps = _per_record([header.max_timestamp for header in headers], counts, np.int64)
    return _Fields(
        offsets=base_offsets + offset_deltas,
        timestamps_ms=np.where(append_time, max_timestamps, base_timestamps + timestamp_deltas),
        timestamp_types=append_time.astype(np.int32),
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        header_starts=header_starts,
        header_counts=header_counts,
        stops=stops,
    )


def _behind(starts: Int64s, lengths: Int64s, stops: Int64s) -> Int64s:
    """The position at which a byte string ends; at least one byte of the record must follow."""
    _require(bool((lengths >= -1).all() and (lengths < stops - starts).all()))
    behind: Int64s = starts + np.maximum(lengths, 0)
    return behind


def _require(condition: bool) -> None:
    if not condition:
        raise _MalformedError


def _per_record(values: Sequence[Any], counts: Int64s, dtype: Any) -> NDArray[Any]:
    return np.repeat(np.array(values, dtype), counts)


def _assemble(body: bytes, fields: _Fields, wanted: Wanted) -> RecordColumns:
    buffer = pa.py_buffer(body)
    return RecordColumns(
        offsets=pa.array(fields.offsets),
        timestamps=pa.array(fields.timestamps_ms * 1000).cast(pa.timestamp("us", tz="UTC")),
        timestamp_types=pa.array(fields.timestamp_types),
        key=_binary(buffer, fields.key_starts, fields.key_lengths) if wanted.key else None,
        value=_binary(buffer, fields.value_starts, fields.value_lengths) if wanted.value else None,
        headers=_headers(body, fields) if wanted.headers else None,
    )


def _binary(buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> pa.Array:
    """The byte strings at ``starts``. Arrow reads a binary array whose elements alternate between a string
    and the gap up to the next one; taking every other element copies the strings together.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    strings_and_gaps = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), buffer]
    )
    null = lengths < 0
    indices = pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None)
    return strings_and_gaps.take(indices)


def _headers(body: bytes, fields: _Fields) -> pa.Array:
    rows: list[list[dict[str, Any]] | None] = [None] * len(fields.offsets)
    for row in np.flatnonzero(fields.header_counts):
        try:
            rows[row] = _read_headers(
                body, int(fields.header_starts[row]), int(fields.header_counts[row]), int(fields.stops[row])
            )
        except (IndexError, ProtocolError, _MalformedError):
            raise MalformedRecordsError(0, f"offset {fields.offsets[row]} has malformed headers") from None
    return pa.array(rows, arrow_schema((HEADERS,)).field(0).type)


def _read_headers(body: bytes, position: int, count: int, stop: int) -> list[dict[str, Any]]:
    _require(count <= stop - position)
    found = []
    for _ in range(count):
        length, position = read_varint(body, position)
        _require(0 <= length <= stop - position)
        key = body[position : position + length].decode(errors="replace")  # brokers accept any bytes
        position += length
        length, position = read_varint(body, position)
        _require(-1 <= length <= stop - position)
        found.append({"key": key, "value": None if length < 0 else body[position : position + length]})
        position += max(length, 0)
    _require(position == stop)
    return found
