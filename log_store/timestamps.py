"""Finding records by time (ListOffsets): a look-up is prepared on the event loop and carried out in a thread.

The time index leads to the first batch that can hold the record; the record in it is found by opening the
batch, because a batch header knows only the largest timestamp. A batch may unfold to a hundred times its
size, so that is left to the thread, which reads through descriptors of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pykraft.kafka_protocol.compression import decompress
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import find_record
from pykraft.kafka_protocol.record_spans import iter_spans
from pykraft.kafka_protocol.records import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, timestamp_of
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import CorruptLogError, TimestampOffset
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES, iter_headers
from pykraft.log_store.segment.segment import Segment
from pykraft.runtime.disk import Disk, DiskFile

MOST_UNFOLDED_BYTES = 128 << 20
"""A batch that unfolds to more is not opened: its first offset is the answer."""


@dataclass(frozen=True, slots=True)
class TimeLookup:
    """The search for the first record, by offset, that is not earlier than ``timestamp_ms``.

    ``pieces``: path, first position and end of what may hold it, in order. ``truncations``: the log's
    ``rewrite_count``, for who judges an error of :meth:`run`.
    """

    disk: Disk
    pieces: tuple[tuple[str, int, int], ...]
    timestamp_ms: int
    log_start_offset: int
    truncations: int

    def run(self) -> TimestampOffset | None:
        """Blocks. :class:`CorruptLogError` and :class:`OSError` if the files are damaged, cut or deleted."""
        for path, position, end in self.pieces:
            file = self.disk.open(path, create=False)
            try:
                found = self._find_in(file, position, end)
            finally:
                file.close()
            if found is not None:
                return found
        return None

    def _find_in(self, file: DiskFile, start: int, end: int) -> TimestampOffset | None:
        for position, header in iter_headers(file, start, end):
            if header.max_timestamp < self.timestamp_ms or header.last_offset < self.log_start_offset:
                continue
            if header.record_count == 0:
                continue  # compaction has removed its records
            found = self._find_record(file, position, header)
            if found is not None:
                return found
        return None

    def _find_record(self, file: DiskFile, position: int, header: BatchHeader) -> TimestampOffset | None:
        epoch, first_offset = header.partition_leader_epoch, max(header.base_offset, self.log_start_offset)
        if header.is_log_append_time and header.record_count > header.last_offset_delta:
            return TimestampOffset(header.max_timestamp, first_offset, epoch)
        least_ms = -(1 << 63) if header.is_log_append_time else self.timestamp_ms
        batch = file.pread(position, header.size_bytes)
        try:
            found = find_record(batch, header, least_ms, self.log_start_offset, max_bytes=MOST_UNFOLDED_BYTES)
        except ProtocolError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return TimestampOffset(header.max_timestamp, first_offset, epoch)
            raise CorruptLogError(file.path, position, error.message) from error
        if found is None:
            return None
        timestamp_ms = header.max_timestamp if header.is_log_append_time else found[0]
        return TimestampOffset(timestamp_ms, found[1], epoch)

    def largest_timestamp_ms(self, file: DiskFile, position: int, header: BatchHeader) -> int:
        """The largest among records of a batch that are not below the log start; -1 if there is none."""
        least_delta = self.log_start_offset - header.base_offset
        if header.is_log_append_time or least_delta <= 0:
            return header.max_timestamp
        batch = file.pread(position, header.size_bytes)
        try:
            body = decompress(
                header.compression, batch[HEADER_BYTES : header.size_bytes], MOST_UNFOLDED_BYTES
            )
            times = [
                timestamp_of(header.base_timestamp, span.timestamp_delta)
                for span in iter_spans(body, header.record_count)
                if span.offset_delta >= least_delta
            ]
            return max(times, default=NO_TIMESTAMP)
        except ProtocolError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return header.max_timestamp
            raise CorruptLogError(file.path, position, error.message) from error


@dataclass(frozen=True, slots=True)
class LatestLookup:
    """The search for the first of the records with the largest timestamp.

    ``segments``: (largest timestamp, look-up), the largest first. A time may be that of an empty batch whose
    records compaction has removed, or of a record below the log start.
    """

    segments: tuple[tuple[int, TimeLookup], ...]
    truncations: int

    def run(self) -> TimestampOffset | None:
        """Blocks. Errors as :meth:`TimeLookup.run`."""
        best: TimestampOffset | None = None
        for timestamp_ms, lookup in self.segments:
            if best is not None and best.timestamp_ms >= timestamp_ms:
                break
            found = lookup.run()
            if found is None:
                whole = tuple((path, 0, end) for path, _, end in lookup.pieces)
                largest_ms = _largest_timestamp_ms(lookup)
                found = replace(lookup, pieces=whole, timestamp_ms=largest_ms).run()
            if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
                best = found
        return best


def _largest_timestamp_ms(lookup: TimeLookup) -> int:
    """The largest timestamp of the records from the log start on."""
    largest_ms = 0
    for path, _, end in lookup.pieces:
        file = lookup.disk.open(path, create=False)
        try:
            for position, header in iter_headers(file, 0, end, SCAN_READ_AHEAD_BYTES):
                if header.record_count and header.last_offset >= lookup.log_start_offset:
                    largest_ms = max(largest_ms, lookup.largest_timestamp_ms(file, position, header))
        finally:
            file.close()
    return largest_ms


def prepare_lookup(
    disk: Disk, segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int, truncations: int
) -> TimeLookup:
    """The look-up in these segments; their indexes lead to where it starts.

    :class:`BadIndexError` if one has to be built again first.
    """
    pieces: list[tuple[str, int, int]] = []
    for segment in segments:
        if segment.max_timestamp[0] < timestamp_ms:
            continue
        position = 0
        if not pieces:
            found = segment.find(max(segment.find_time(timestamp_ms), log_start_offset))
            if found is None:
                continue
            position = found[0]
        pieces.append((segment.path, position, segment.size_bytes))
    return TimeLookup(disk, tuple(pieces), timestamp_ms, log_start_offset, truncations)


def prepare_latest(
    disk: Disk, segments: Sequence[Segment], log_start_offset: int, truncations: int
) -> LatestLookup:
    """The look-up of the first record with the largest timestamp of the log (KIP-734)."""
    by_time = sorted(
        (segment for segment in segments if segment.max_timestamp[0] >= 0),
        key=lambda segment: -segment.max_timestamp[0],
    )
    lookups = [
        TimeLookup(
            disk,
            ((segment.path, 0, segment.size_bytes),),
            segment.max_timestamp[0],
            log_start_offset,
            truncations,
        )
        for segment in by_time
    ]
    if by_time:
        timestamp_ms = by_time[0].max_timestamp[0]
        lookups[0] = prepare_lookup(disk, by_time[:1], timestamp_ms, log_start_offset, truncations)
    return LatestLookup(tuple((lookup.timestamp_ms, lookup) for lookup in lookups), truncations)
