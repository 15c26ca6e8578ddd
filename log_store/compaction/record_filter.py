"""The compaction of one batch: all of it stays, some records, its empty header, or nothing.

A record stays if it is the newest with its key, or lies beyond the offset map. A tombstone stays until the
delete horizon of its batch, which the first round sets that leaves it (KIP-534): until then a reader that is
on its way through the log learns of the deletion. A batch that an active producer's state rests on stays,
without records if need be. Data of an aborted transaction goes at once, a marker after its delete horizon.

The horizon takes the place of the base timestamp, so the times of the records become deltas to it. Where one
is so early that its delta has more than 64 bits, the batch gets no horizon, and its tombstones stay. (The
arithmetic of Kafka wraps there, and that of most clients.) What is written again is read and compared
before it is believed: a wrong batch with a valid checksum would stay for good.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice

from pykraft.kafka_protocol.compression import Compression, compress, decompress
from pykraft.kafka_protocol.markers import read_kind
from pykraft.kafka_protocol.record_codec import MAX_DECOMPRESSED_BYTES
from pykraft.kafka_protocol.record_spans import RecordSpan, iter_spans, write_record
from pykraft.kafka_protocol.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    GREATEST_TIMESTAMP,
    HEADER_BYTES,
    LEAST_TIMESTAMP,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
    replace_records,
    timestamp_of,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.transactions import CleanedTransactions

RECORDS_PER_PAUSE = 256

Work = Generator[int, None, bytes | None]
"""Yields the number of records looked at, returns what stays of a batch; None for nothing."""


@dataclass(slots=True)
class ActiveProducers:
    """The batches that the state of producers rests on: the last offsets of those with data, and of producers
    that have only a marker (producer id, epoch).

    ``rest``: the producers that are not among them yet, each with its id, its epoch and the last offsets of
    its batches. There may be very many, so they are taken in by and by.
    """

    last_offsets: set[int] = field(default_factory=set)
    marker_epochs: set[tuple[int, int]] = field(default_factory=set)
    rest: Iterator[tuple[int, int, Sequence[int]]] = iter(())

    def gather(self) -> Iterator[int]:
        """Take in the rest, and tell after each part how many those were."""
        while part := list(islice(self.rest, RECORDS_PER_PAUSE)):
            for producer_id, epoch, last_offsets in part:
                if last_offsets:
                    self.last_offsets.update(last_offsets)
                else:
                    self.marker_epochs.add((producer_id, epoch))
            yield len(part)

    def need(self, header: BatchHeader) -> bool:
        """Whether this batch must stay, if only as an empty one."""
        if header.producer_id < 0:
            return False
        if header.last_offset in self.last_offsets:
            return True
        return header.is_control and (header.producer_id, header.producer_epoch) in self.marker_epochs


@dataclass(slots=True)
class Kept:
    """Those records of a batch that stay: ``records``, their bytes, and of each its time and where in
    ``body``, the records of the whole batch, the part is that follows it.
    """

    body: bytes
    base_timestamp: int
    records: bytearray = field(default_factory=bytearray)
    times_ms: array[int] = field(default_factory=partial(array, "q"))
    _rests: array[int] = field(default_factory=partial(array, "i"))
    _ends: array[int] = field(default_factory=partial(array, "i"))

    @property
    def record_count(self) -> int:
        return len(self.times_ms)

    def count(self, span: RecordSpan) -> None:
        self.times_ms.append(timestamp_of(self.base_timestamp, span.timestamp_delta))
        self._rests.append(span.rest)
        self._ends.append(span.end)

    def rest(self, index: int) -> bytes:
        """Return the bytes behind a record's time."""
        return self.body[self._rests[index] : self._ends[index]]


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """The rules of one pass. ``now_ms`` is the wall clock at the beginning of the round."""

    newest: OffsetMap
    transactions: CleanedTransactions
    producers: ActiveProducers
    now_ms: int
    delete_retention_ms: int

    def filter(self, header: BatchHeader, batch: bytes) -> Work:
        """Compact the next batch, which is whole; return ``batch`` itself if nothing changes."""
        kept = yield from self._filter(header, batch)
        if kept is None and self.producers.need(header):
            return batch if header.record_count == 0 else empty_batch(header)
        return kept

    def _filter(self, header: BatchHeader, batch: bytes) -> Work:
        if header.is_control:
            return (yield from self._filter_marker(header, batch))
        if self.transactions.is_aborted(header) or header.record_count == 0:
            return None
        if header.base_offset >= self.newest.end_offset:
            return batch
        body = read_body(header, batch)
        kept = Kept(body, header.base_timestamp)
        starts_horizon = False
        run_start = -1  # of the records that are kept and not yet copied
        for index, span in enumerate(iter_spans(body, header.record_count), start=1):
            offset = header.base_offset + span.offset_delta
            is_mapped = offset < self.newest.end_offset
            if not is_mapped or self._is_kept(header, offset, span):
                starts_horizon |= is_mapped and span.is_tombstone
                kept.count(span)
                run_start = span.start if run_start < 0 else run_start
            elif run_start >= 0:
                kept.records += body[run_start : span.start]
                run_start = -1
            if index % RECORDS_PER_PAUSE == 0:
                yield RECORDS_PER_PAUSE
        yield header.record_count % RECORDS_PER_PAUSE
        if kept.record_count == 0:
            return None
        needs_horizon = starts_horizon and self._may_have_horizon(header, kept)
        if kept.record_count == header.record_count and not needs_horizon:
            return batch
        if run_start >= 0:
            kept.records += body[run_start:]
        if needs_horizon:
            return (yield from self._with_horizon(header, kept))
        return (yield from rebuild_batch(header, kept))

    def _is_kept(self, header: BatchHeader, offset: int, span: RecordSpan) -> bool:
        if span.key is None or not self.newest.is_newest(span.key, offset):
            return False
        horizon_ms = header.delete_horizon_ms
        return not span.is_tombstone or horizon_ms is None or self.now_ms < horizon_ms

    def _filter_marker(self, header: BatchHeader, batch: bytes) -> Work:
        kind = read_kind(header, batch)
        if not self.transactions.is_needless(header, kind):
            return batch
        horizon_ms = header.delete_horizon_ms
        if kind is None or (horizon_ms is not None and horizon_ms <= self.now_ms):
            return None
        body = read_body(header, batch)
        kept = Kept(body, header.base_timestamp, bytearray(body))
        for span in iter_spans(body, header.record_count):
            kept.count(span)
        if not self._may_have_horizon(header, kept):
            return batch
        return (yield from self._with_horizon(header, kept))

    @property
    def _horizon_ms(self) -> int:
        """The horizon of batches that get one from this pass."""
        return min(self.now_ms + self.delete_retention_ms, GREATEST_TIMESTAMP)

    def _may_have_horizon(self, header: BatchHeader, kept: Kept) -> bool:
        """Whether a batch has no horizon yet, and whether the times of its records can follow from one."""
        return header.delete_horizon_ms is None and min(kept.times_ms) - self._horizon_ms >= LEAST_TIMESTAMP

    def _with_horizon(self, header: BatchHeader, kept: Kept) -> Work:
        """The batch with the time from which its tombstones, or its marker, may go."""
        horizon_ms, shifted = self._horizon_ms, bytearray()
        for index, time_ms in enumerate(kept.times_ms):
            write_record(shifted, time_ms - horizon_ms, kept.rest(index))
            if index % RECORDS_PER_PAUSE == 0:
                yield RECORDS_PER_PAUSE
        return (yield from rebuild_batch(header, replace(kept, records=shifted), horizon_ms))


def read_body(header: BatchHeader, batch: bytes) -> bytes:
    """The records of a whole batch, decompressed."""
    with memoryview(batch) as whole, whole[HEADER_BYTES:] as payload:
        return decompress(header.compression, payload, max(MAX_DECOMPRESSED_BYTES, len(payload)))


def rebuild_batch(header: BatchHeader, kept: Kept, delete_horizon_ms: int | None = None) -> Work:
    """A batch of these records, with the offsets, sequences, epoch and codec of the original."""
    header = replace(header, record_count=kept.record_count)
    if not header.is_log_append_time:
        header = replace(header, max_timestamp=max(NO_TIMESTAMP, *kept.times_ms))
    if delete_horizon_ms is not None:
        header = replace(
            header, base_timestamp=delete_horizon_ms, attributes=header.attributes | DELETE_HORIZON_BIT
        )
    codec = header.compression
    batch = bytes(replace_records(header, compress(codec, kept.records), codec))
    yield from _check_rebuilt(batch, kept)
    return batch


def _check_rebuilt(batch: bytes, kept: Kept) -> Generator[int, None, None]:
    """A rewritten batch reads as the records that stay: the same times and contents."""
    header = read_header(batch)
    is_same = header.record_count == kept.record_count and crc_is_valid(batch, 0, header)
    body = read_body(header, batch)
    for index, span in enumerate(iter_spans(body, kept.record_count)):
        time_ms = timestamp_of(header.base_timestamp, span.timestamp_delta)
        is_same = (
            is_same and time_ms == kept.times_ms[index] and body[span.rest : span.end] == kept.rest(index)
        )
        if index % RECORDS_PER_PAUSE == 0:
            yield RECORDS_PER_PAUSE
    if not is_same:
        raise AssertionError(f"the batch of offset {header.base_offset} would be read with other records")


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone: offsets, producer and sequences, leader epoch and the newest timestamp stay."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    header = replace(header, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return bytes(replace_records(header, b"", Compression.NONE))
