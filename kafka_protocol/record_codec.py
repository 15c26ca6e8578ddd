"""Encodes and decodes the records of a batch: for clients, coordinators and the metadata log.

The broker's data path never decodes records: it only walks them (``record_walk``). Record layout (all numbers
zigzag varints): length, attributes 1, timestamp delta, offset delta, key length and key (-1: null), value
length and value, header count and headers. The count in the batch header and every length in a record are
checked against the bytes left before they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression, compress, decompress
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import (
    Buffer,
    ProtocolError,
    read_uvarint_tail,
    read_varint,
    read_varlong,
    write_varint,
)
from pykraft.kafka_protocol.records import BatchHeader

MAX_DECOMPRESSED_BYTES = 64 << 20
"""The default limit on the decompressed size of one batch."""

MIN_RECORD_BYTES = 7
_MIN_HEADER_BYTES = 2

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record of a decoded batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordInput(NamedTuple):
    """One record to be encoded; its offset comes from its place in the batch."""

    key: Buffer | None
    value: Buffer | None
    headers: Sequence[tuple[str, Buffer | None]] = ()
    timestamp_ms: int = records.NO_TIMESTAMP


class EncodedRecords(NamedTuple):
    """Records as they are in a batch that is not compressed: ``body`` holds ``record_count`` of them, with
    offset deltas from 0 and timestamp deltas from ``base_timestamp_ms``."""

    body: bytes
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


class BatchFields(TypedDict, total=False):
    """Fields of a batch header that do not follow from its records; :func:`seal_batch` has the defaults."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compression: Compression
    is_control: bool
    is_transactional: bool


def encode_batch(inputs: Sequence[RecordInput], **fields: Unpack[BatchFields]) -> bytes:
    """One whole batch of at least one record, with consecutive offsets and a valid CRC."""
    return seal_batch(encode_records(inputs), **fields)


def encode_records(inputs: Sequence[RecordInput]) -> EncodedRecords:
    """At least one record."""
    assert inputs, "a batch holds at least one record"
    base_timestamp_ms = inputs[0].timestamp_ms
    body = bytearray()
    scratch = bytearray()
    for offset_delta, record in enumerate(inputs):
        scratch.clear()
        _write_record(scratch, record, record.timestamp_ms - base_timestamp_ms, offset_delta)
        write_varint(body, len(scratch))
        body += scratch
    max_timestamp_ms = max(record.timestamp_ms for record in inputs)
    return EncodedRecords(bytes(body), len(inputs), base_timestamp_ms, max_timestamp_ms)


def seal_batch(
    content: EncodedRecords,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = records.NO_PRODUCER_ID,
    producer_epoch: int = records.NO_PRODUCER_EPOCH,
    base_sequence: int = records.NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    is_control: bool = False,
    is_transactional: bool = False,
) -> bytes:
    """The whole batch of encoded records, whose offsets follow each other from ``base_offset``."""
    body, count, base_timestamp_ms, max_timestamp_ms = content
    payload = body if compression is Compression.NONE else compress(compression, body)
    attributes = (
        compression
        | (records.CONTROL_BIT if is_control else 0)
        | (records.TRANSACTIONAL_BIT if is_transactional else 0)
    )
    out = bytearray(records.HEADER_BYTES + len(payload))
    records.HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - records.LOG_OVERHEAD_BYTES,
        leader_epoch,
        records.MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    out[records.HEADER_BYTES :] = payload
    records.write_crc(out, 0, len(out))
    return bytes(out)


def _write_record(out: bytearray, record: RecordInput, timestamp_delta: int, offset_delta: int) -> None:
    out.append(0)
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for name, value in record.headers:
        _write_bytes(out, name.encode())
        _write_bytes(out, value)


def _write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)
        return
    write_varint(out, len(value))
    out += value


def decode_batch(
    batch: Buffer, header: BatchHeader | None = None, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """All records of the batch that ``batch`` starts with.

    The CRC is not checked (see :func:`records.crc_is_valid`). :class:`ProtocolError` (CORRUPT_MESSAGE, or
    MESSAGE_TOO_LARGE past ``max_bytes`` after decompression) for anything malformed.
    """
    header = header or records.read_header(batch)
    body = decompress_records(batch, header, max_bytes=max_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    return read_records(body, header.record_count, header.base_offset, header.base_timestamp, append_time)


def read_records(
    body: bytes, record_count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> list[Record]:
    """The records of a batch that is decompressed. ``append_time``: the time of all, if the broker set it.

    :class:`ProtocolError` (CORRUPT_MESSAGE) unless ``body`` is exactly so many records.
    """
    try:
        return _read_records(body, record_count, base_offset, base_timestamp, append_time)
    except IndexError:
        raise corrupt_batch("the last record is cut short") from None
    except ProtocolError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise
        raise corrupt_batch(error.message) from None


def decompress_records(
    batch: Buffer, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Decompress the records behind a batch's header. :class:`ProtocolError` as :func:`decode_batch`."""
    if header.magic != records.MAGIC:
        raise corrupt_batch(f"magic {header.magic}")
    if not records.HEADER_BYTES <= header.size_bytes <= len(batch):
        raise corrupt_batch(f"length {header.batch_length}")
    with memoryview(batch) as whole, whole[records.HEADER_BYTES : header.size_bytes] as payload:
        body = decompress(header.compression, payload, max(max_bytes, len(payload)))
    check_record_count(body, header.record_count)
    return body


def find_record(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, least_offset: int, *, max_bytes: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record that is not earlier than ``timestamp_ms`` nor below
    ``least_offset``, without making records of the others. Large batches belong in a thread.

    :class:`ProtocolError` as :func:`decode_batch`.
    """
    with memoryview(batch) as whole, whole[records.HEADER_BYTES : header.size_bytes] as payload:
        body = decompress(header.compression, payload, max(max_bytes, len(payload)))
    least_delta, base_timestamp = least_offset - header.base_offset, header.base_timestamp
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(body, position)
            if length < MIN_RECORD_BYTES - 1:
                raise corrupt_batch("a record is cut short")
            timestamp_delta, at = read_varlong(body, position + 1)
            found_ms = records.timestamp_of(base_timestamp, timestamp_delta)
            if found_ms >= timestamp_ms:
                offset_delta, _ = read_varint(body, at)
                if offset_delta >= least_delta:
                    return found_ms, header.base_offset + offset_delta
            position += length
    except IndexError:
        raise corrupt_batch("the last record is cut short") from None
    return None


def corrupt_batch(what: str) -> ProtocolError:
    """The error of a batch whose records are not what its header or their lengths say."""
    return ProtocolError(f"corrupt record batch: {what}", ErrorCode.CORRUPT_MESSAGE)


def check_record_count(body: bytes, record_count: int) -> None:
    """:class:`ProtocolError` if that many records cannot be in the decompressed bytes of a batch."""
    if not 0 <= record_count <= len(body) // MIN_RECORD_BYTES:
        raise corrupt_batch(f"{record_count} records in {len(body)} bytes")


def _read_records(
    body: bytes, record_count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """The hot loop: the one-byte case of each varint is inlined, the others call a function.

    A key or value that reaches past its record leaves ``position`` past ``end``, where it can never be again.
    """
    body_bytes = len(body)
    new_record = tuple.__new__
    result: list[Record] = []
    position = 0
    for _ in range(record_count):
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        end = position + (n >> 1)
        if n & 1 or end > body_bytes:
            raise corrupt_batch("a record is cut short")
        position += 1  # the record's attributes: unused
        n = body[position]
        if n > 127:
            timestamp_delta, position = read_varlong(body, position)
        else:
            timestamp_delta = (n >> 1) ^ -(n & 1)
            position += 1
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        offset = base_offset + ((n >> 1) ^ -(n & 1))
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        key = value = None
        if n & 1 == 0:
            stop = position + (n >> 1)
            key = body[position:stop]
            position = stop
        elif n != 1:
            raise corrupt_batch("a key of negative length")
        n = body[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(body, position, n)
        if n & 1 == 0:
            stop = position + (n >> 1)
            value = body[position:stop]
            position = stop
        elif n != 1:
            raise corrupt_batch("a value of negative length")
        headers: Headers = ()
        if body[position] == 0:
            position += 1
        else:
            headers, position = _read_headers(body, position, end)
        if position != end:
            raise corrupt_batch("a record does not fill its length")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        result.append(new_record(Record, (offset, timestamp, key, value, headers)))
    if position != body_bytes:
        raise corrupt_batch("bytes follow the last record")
    return result


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length < 0:
        if length != -1:
            raise corrupt_batch(f"a length of {length}")
        return None, position
    stop = position + length
    if stop > end:
        raise corrupt_batch("a length reaches past its record")
    return body[position:stop], stop


def _read_headers(body: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(body, position)
    if not 0 <= count <= (end - position) // _MIN_HEADER_BYTES:
        raise corrupt_batch(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(body, position, end)
        if name is None:
            raise corrupt_batch("a header without a name")
        value, position = _read_bytes(body, position, end)
        headers.append((str(name, "utf-8", "replace"), value))  # brokers accept any bytes; so must a reader
    return tuple(headers), position
