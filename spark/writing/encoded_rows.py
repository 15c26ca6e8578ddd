"""Rows of a frame as encoded records: by column, without a Python object for a record.

A record is a run of fields, and most of them are short varints that depend on a length. So each field becomes
an Arrow column (the varints of the few lengths that occur are looked up), and joining the columns element by
element writes all records of a block one after the other: a batch is a slice of the result. What is decided
here is what the row-wise path (``written_rows``) and the producer decide together: the same partitions, by
the same hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykraft.kafka_client.producer.partitioner import MURMUR2_FACTOR, MURMUR2_SEED
from pykraft.kafka_protocol.primitives import write_varint
from pykraft.kafka_protocol.record_codec import EncodedRecords
from pykraft.spark.writing.written_rows import WriteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

BLOCK_BYTES: Final = 4 << 20
"""Rows are collected up to this size, so that there are whole batches for many partitions."""

_ANY: Final = -1
_BOUND_BYTES: Final = 24
"""At most this much is added to key and value by lengths, deltas and the number of headers."""


class Encoded(NamedTuple):
    """A batch to be. ``partition`` None: any."""

    topic: str
    partition: int | None
    records: EncodedRecords


def blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, some ``BLOCK_BYTES`` at a time."""
    kept: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        kept.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= BLOCK_BYTES:
            yield from _joined(kept)
            kept, size_bytes = [], 0
    if kept:
        yield from _joined(kept)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One, unless a column is too large for that."""
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def has_headers(block: pa.RecordBatch) -> bool:
    """Whether a row has a header, which only the row-wise path writes."""
    if "headers" not in block.schema.names:
        return False
    sizes = pc.list_value_length(_column(block, "headers"))
    return bool(pc.any(pc.greater(sizes, 0)).as_py())


def encode_rows(
    block: pa.RecordBatch,
    topic: str | None,
    partition_count: Callable[[str], int],
    max_bytes: int,
    timestamp_ms: int,
) -> Iterator[Encoded]:
    """Batches of at most ``max_bytes``, or of one record; rows of one partition keep their order.

    ``topic``: of all rows, whatever their column says. :class:`WriteError` for a row without a topic, or with
    a negative partition.
    """
    values = _column(block, "value").cast(pa.binary())
    nothing = pa.nulls(block.num_rows, pa.binary())
    keys = _column(block, "key").cast(pa.binary()) if "key" in block.schema.names else nothing
    for name, rows in _by_topic(block, topic):
        own_keys, own_values = keys.take(rows), values.take(rows)
        given = _column(block, "partition").take(rows) if "partition" in block.schema.names else None
        partitions = _partitions(own_keys, given, partition_count(name))
        order = np.argsort(partitions, kind="stable")
        own_keys, own_values = own_keys.take(pa.array(order)), own_values.take(pa.array(order))
        for partition, records in _batches(own_keys, own_values, partitions[order], max_bytes, timestamp_ms):
            yield Encoded(name, None if partition == _ANY else partition, records)


def _column(block: pa.RecordBatch, name: str) -> Any:
    return block.column(block.schema.get_field_index(name))


def _by_topic(block: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.Array]]:
    """Topics with the numbers of their rows."""
    if topic is not None:
        yield topic, pa.array(np.arange(block.num_rows))
        return
    topics = _column(block, "topic")
    if topics.null_count:
        raise WriteError("a row names no topic: set a default one with option 'topic'")
    named = topics.dictionary_encode()
    codes = named.indices.to_numpy()
    for code, name in enumerate(named.dictionary.to_pylist()):
        yield name, pa.array(np.flatnonzero(codes == code))


def _partitions(keys: pa.Array, given: pa.Array | None, count: int) -> Integers:
    """The partition of each row: the one that it names, else that of its key, else ``_ANY``."""
    by_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    found = np.full(len(keys), _ANY, np.int64)
    if given is not None and given.null_count < len(given):
        named = pc.is_valid(given).to_numpy(zero_copy_only=False)
        found = pc.fill_null(given, _ANY).to_numpy().astype(np.int64)
        if (found[named] < 0).any():
            raise WriteError(f"a row names partition {found[named].min()}")
        by_key &= ~named
    hashed = murmur2_of(keys.filter(pa.array(by_key)))
    found[by_key] = (hashed & 0x7FFFFFFF) % count
    return found


def murmur2_of(keys: pa.Array) -> Integers:
    """The hash of each key, none of which is null, by ``murmur2``."""
    starts = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(starts)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        columns = data[starts[rows][:, None] + np.arange(length)].astype(np.uint32)
        hashes[rows] = _murmur2(columns)
    return hashes.astype(np.int64)


def _murmur2(columns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """``columns``: a row for each key, all of one length, with a byte in each column."""
    factor = np.uint32(MURMUR2_FACTOR)
    count, length = columns.shape
    whole = length & ~3
    h = np.full(count, MURMUR2_SEED ^ length, np.uint32)
    for at in range(0, whole, 4):
        k = _little_endian(columns[:, at : at + 4]) * factor
        h = (h * factor) ^ ((k ^ (k >> np.uint32(24))) * factor)
    if whole < length:
        h = (h ^ _little_endian(columns[:, whole:])) * factor
    h = (h ^ (h >> np.uint32(13))) * factor
    return h ^ (h >> np.uint32(15))


def _little_endian(columns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found = np.zeros(len(columns), np.uint32)
    for place in range(columns.shape[1]):
        found |= columns[:, place] << np.uint32(8 * place)
    return found


def _batches(
    keys: pa.Array, values: pa.Array, partitions: Integers, max_bytes: int, timestamp_ms: int
) -> Iterator[tuple[int, EncodedRecords]]:
    """``partitions`` is sorted."""
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    sizes = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + _BOUND_BYTES
    cuts = _cuts(partitions, np.concatenate(([0], np.cumsum(sizes))), max_bytes)
    starts = np.repeat(cuts[:-1], np.diff(cuts))
    deltas = np.arange(len(keys)) - starts
    fields = [
        _varints(deltas),
        _varints(key_lengths),
        pc.fill_null(keys, b""),
        _varints(value_lengths),
        pc.fill_null(values, b""),
    ]
    field_bytes = sum(pc.binary_length(field).to_numpy() for field in fields)
    attributes_and_time, no_headers = pa.scalar(b"\0\0", pa.binary()), pa.scalar(b"\0", pa.binary())
    records = pc.binary_join_element_wise(
        _varints(field_bytes + 3), attributes_and_time, *fields, no_headers, pa.scalar(b"", pa.binary())
    )
    ends = np.frombuffer(records.buffers()[1], np.int32)
    data = memoryview(records.buffers()[2])
    for start, end in pairwise(cuts):
        body = bytes(data[ends[start] : ends[end]])
        yield int(partitions[start]), EncodedRecords(body, int(end - start), timestamp_ms, timestamp_ms)


def _cuts(partitions: Integers, bytes_before: Integers, max_bytes: int) -> Integers:
    """Where batches begin, and the end of the last."""
    cuts = [0]
    changes = [*np.flatnonzero(np.diff(partitions)) + 1, len(partitions)]
    for end in changes:
        while cuts[-1] < end:
            fits = int(np.searchsorted(bytes_before, bytes_before[cuts[-1]] + max_bytes, side="right")) - 1
            cuts.append(min(max(fits, cuts[-1] + 1), end))
    return np.array(cuts)


def _lengths(values: pa.Array) -> Integers:
    """-1 for null."""
    found: Integers = pc.fill_null(pc.binary_length(values), -1).to_numpy().astype(np.int64)
    return found


def _varints(numbers: Integers) -> pa.Array:
    different, places = np.unique(numbers, return_inverse=True)
    return pa.array([_varint(int(number)) for number in different], pa.binary()).take(pa.array(places))


def _varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)
