"""Record batches to Arrow: the bytes of a whole Fetch response become one ``RecordBatch``.

The CRC is checked over the bytes as received, compressed batches are decompressed within limits, control
batches have been left out before. Malformed data is CORRUPT_MESSAGE; a record is never silently dropped or
truncated. The records themselves are read by ``compiled_columns``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pykraft.kafka_protocol.compression import Compression, unfold
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import MAX_DECOMPRESSED_BYTES
from pykraft.kafka_protocol.records import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid
from pykraft.spark.columns import HEADERS, arrow_schema
from pykraft.spark.compiled_columns import read_columns
from pykraft.spark.record_columns import MalformedRecordsError, RecordColumns, Span, Wanted

_CHUNK_BYTES: Final = 64 << 20

Batches = Sequence[tuple[int, BatchHeader]]


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """The work on one partition: offsets from ``start`` up to ``end``, these columns."""

    topic: str
    partition: int
    start: int
    end: int
    columns: tuple[str, ...]
    check_crcs: bool = True

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.start, self.end, *(name in self.columns for name in ("key", "value", HEADERS)))


def decode_batches(data: memoryview, batches: Batches, config: DecodeConfig) -> Iterator[pa.RecordBatch]:
    """The records of ``batches`` (position in ``data``, header) as Arrow, in order; may yield nothing."""
    in_range = []
    for position, header in batches:
        if header.last_offset < config.start or header.base_offset >= config.end:
            continue
        if header.magic != MAGIC:
            raise _corrupt(config, header, f"format {header.magic} is not supported, only {MAGIC}")
        if config.check_crcs and not crc_is_valid(data, position, header):
            raise _corrupt(config, header, "its CRC does not match")
        in_range.append((position, header))
    for spans in _chunks(data, in_range, config):
        try:
            columns = read_columns(spans, config.wanted)
        except MalformedRecordsError as error:
            raise _corrupt(config, spans[error.span].header, error.what) from None
        if len(columns.offsets):
            yield _assemble(columns, config)


def _chunks(data: memoryview, batches: Batches, config: DecodeConfig) -> Iterator[list[Span]]:
    """The records of whole batches, uncompressed, some ``_CHUNK_BYTES`` at a time."""
    spans: list[Span] = []
    size_bytes = 0
    for position, header in batches:
        start, end = position + HEADER_BYTES, position + header.size_bytes
        if header.compression is Compression.NONE:
            spans.append(Span(header, data, start, end))
        else:
            payload = data[start:end]
            try:
                plain = unfold(header.compression, payload, max(MAX_DECOMPRESSED_BYTES, len(payload)))
            except ProtocolError as error:
                raise _corrupt(config, header, error.message) from error
            spans.append(Span(header, plain, 0, len(plain)))
        size_bytes += spans[-1].end - spans[-1].start
        if size_bytes >= _CHUNK_BYTES:
            yield spans
            spans, size_bytes = [], 0
    if spans:
        yield spans


def _assemble(records: RecordColumns, config: DecodeConfig) -> pa.RecordBatch:
    count = len(records.offsets)
    arrays = []
    for column in config.columns:
        match column:
            case "key":
                array = records.key
            case "value":
                array = records.value
            case "topic":
                array = pa.repeat(pa.scalar(config.topic, pa.string()), count)
            case "partition":
                array = pa.array(np.full(count, config.partition, np.int32))
            case "offset":
                array = records.offsets
            case "timestamp":
                array = records.timestamps
            case "timestampType":
                array = records.timestamp_types
            case "headers":
                array = records.headers
            case _:
                raise AssertionError(column)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(config.columns))


def _corrupt(config: DecodeConfig, header: BatchHeader, what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{config.topic}-{config.partition}: the batch at offset {header.base_offset} is corrupt: {what}",
    )
