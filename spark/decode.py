"""Record batches to Arrow: the bytes of a whole Fetch response become one ``RecordBatch``.

Decoding is done once per response, not once per batch, because on small batches the fixed cost of a vector
operation would outweigh its gain. Keys and values are never touched one by one: Arrow copies them out of the
raw bytes by offsets. Compressed batches are decompressed first (within limits), control batches are left out
before, and the CRC is checked over the bytes as received. Malformed data is CORRUPT_MESSAGE; a record is
never silently dropped or truncated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pykraft.kafka_protocol.compression import Compression, decompress
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import ProtocolError, read_varint
from pykraft.kafka_protocol.record_codec import MAX_DECOMPRESSED_BYTES
from pykraft.kafka_protocol.records import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid
from pykraft.spark.columns import arrow_schema
from pykraft.spark.varints import Bytes, Int64s, read_varints, walk_records

_CHUNK_BYTES = 64 << 20

Batches = Sequence[tuple[int, BatchHeader]]


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """What to decode of one partition: offsets from ``start`` up to ``end``, these columns."""

    topic: str
    partition: int
    start: int
    end: int
    columns: tuple[str, ...]
    check_crcs: bool = True


def decode_batches(data: memoryview, batches: Batches, config: DecodeConfig) -> Iterator[pa.RecordBatch]:
    """The records of ``batches`` (position in ``data``, header) as Arrow, in order; may yield nothing."""
    wanted = []
    for position, header in batches:
        if header.last_offset < config.start or header.base_offset >= config.end:
            continue
        if header.magic != MAGIC:
            raise _corrupt(config, header, f"format {header.magic} is not supported, only {MAGIC}")
        if config.check_crcs and not crc_is_valid(data, position, header):
            raise _corrupt(config, header, "its CRC does not match")
        wanted.append((position, header))
    for body, spans in _bodies(data, wanted, config):
        decoded = _decode(body, spans, config)
        if decoded is not None:
            yield decoded


@dataclass(frozen=True, slots=True)
class _Span:
    """The position of one batch's records in a body."""

    header: BatchHeader
    start: int
    end: int


def _bodies(data: memoryview, batches: Batches, config: DecodeConfig) -> Iterator[tuple[bytes, list[_Span]]]:
    """The bytes that hold the records, uncompressed, in chunks of whole batches."""
    if all(header.compression is Compression.NONE for _, header in batches):
        if batches:
            first = batches[0][0]
            end = batches[-1][0] + batches[-1][1].size_bytes
            yield (
                bytes(data[first:end]),
                [
                    _Span(header, position - first + HEADER_BYTES, position - first + header.size_bytes)
                    for position, header in batches
                ],
            )
        return
    body = bytearray()
    spans: list[_Span] = []
    for position, header in batches:
        payload = data[position + HEADER_BYTES : position + header.size_bytes]
        try:
            plain = decompress(header.compression, payload, max(MAX_DECOMPRESSED_BYTES, len(payload)))
        except ProtocolError as error:
            raise _corrupt(config, header, error.message) from error
        spans.append(_Span(header, len(body), len(body) + len(plain)))
        body += plain
        if len(body) >= _CHUNK_BYTES:
            yield bytes(body), spans
            body, spans = bytearray(), []
    if spans:
        yield bytes(body), spans


def _decode(body: bytes, spans: list[_Span], config: DecodeConfig) -> pa.RecordBatch | None:
    begins: list[int] = []
    counts = []
    for span in spans:
        before = len(begins)
        try:
            reached = walk_records(body, span.start, span.end, begins)
        except IndexError:
            raise _corrupt(config, span.header, "a record is truncated") from None
        if reached != span.end or len(begins) - before != span.header.record_count:
            raise _corrupt(config, span.header, "its records do not fill it")
        counts.append(len(begins) - before)
    if not begins:
        return None
    try:
        fields = _fields(body, begins, spans, np.array(counts))
    except (IndexError, _MalformedError):
        raise _corrupt(
            config, spans[0].header, "a record in it or in one of the next batches is malformed"
        ) from None
    keep = (fields.offsets >= config.start) & (fields.offsets < config.end)
    if not keep.all():
        fields = fields.filtered(np.flatnonzero(keep))
    return _assemble(body, fields, config)


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


def _fields(body: bytes, begins: list[int], spans: list[_Span], counts: NDArray[Any]) -> _Fields:
    raw: Bytes = np.frombuffer(body, np.uint8)
    lengths, starts = read_varints(raw, np.array(begins, np.int64))
    stops = starts + lengths
    # The walk treated every length as positive; a negative one, or one truncated to 64 bits, ends elsewhere.
    last_of_batch = np.cumsum(counts)[counts > 0] - 1
    due = np.empty_like(stops)
    due[:-1] = np.array(begins[1:], np.int64)
    due[last_of_batch] = np.array([span.end for span, n in zip(spans, counts, strict=True) if n])
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


def _per_record(values: Sequence[Any], counts: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.repeat(np.array(values, dtype), counts)


def _assemble(body: bytes, fields: _Fields, config: DecodeConfig) -> pa.RecordBatch | None:
    count = len(fields.offsets)
    if count == 0:
        return None
    buffer = pa.py_buffer(body)
    arrays = []
    for column in config.columns:
        match column:
            case "key":
                array = _binary(buffer, fields.key_starts, fields.key_lengths)
            case "value":
                array = _binary(buffer, fields.value_starts, fields.value_lengths)
            case "topic":
                array = pa.repeat(pa.scalar(config.topic, pa.string()), count)
            case "partition":
                array = pa.array(np.full(count, config.partition, np.int32))
            case "offset":
                array = pa.array(fields.offsets)
            case "timestamp":
                array = pa.array(fields.timestamps_ms * 1000).cast(pa.timestamp("us", tz="UTC"))
            case "timestampType":
                array = pa.array(fields.timestamp_types)
            case "headers":
                array = _headers(body, fields, config)
            case _:
                raise AssertionError(column)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(config.columns))


def _binary(buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> pa.Array:
    """The byte strings at ``starts``. Arrow reads a binary array whose elements alternate between a string
    and the gap up to the next one; taking every other element copies the strings together.
    """
    count = len(starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    strings_and_gaps = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), buffer]
    )
    null = lengths < 0
    indices = pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None)
    return strings_and_gaps.take(indices)


def _headers(body: bytes, fields: _Fields, config: DecodeConfig) -> pa.Array:
    """One list per record, null (not empty) for a record without headers, as in Spark's own source."""
    rows: list[list[dict[str, Any]] | None] = [None] * len(fields.offsets)
    for row in np.flatnonzero(fields.header_counts):
        try:
            rows[row] = _read_headers(
                body, int(fields.header_starts[row]), int(fields.header_counts[row]), int(fields.stops[row])
            )
        except (IndexError, ProtocolError, _MalformedError):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{config.topic}-{config.partition}: offset {fields.offsets[row]} has malformed headers",
            ) from None
    return pa.array(rows, arrow_schema(("headers",)).field(0).type)


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


def _corrupt(config: DecodeConfig, header: BatchHeader, what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{config.topic}-{config.partition}: the batch at offset {header.base_offset} is corrupt: {what}",
    )
