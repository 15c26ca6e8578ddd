"""Reads: a slice of batches, their headers one by one, the offset of a time, and the builds of bad indexes.

No record is opened except to answer a look-up by time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import HEADER_BYTES, BatchHeader
from pykraft.log_store import timestamps
from pykraft.log_store.index_build import IndexBuild, IndexCheck, repairing_indexes
from pykraft.log_store.interface import (
    CorruptLogError,
    EpochEnd,
    LogSlice,
    TimestampOffset,
)
from pykraft.log_store.log.state import LogState
from pykraft.log_store.reader import Extent, read_slice, segment_index, walk
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES, read_stored_marker
from pykraft.log_store.scrub import Scrub
from pykraft.log_store.segment.reading import BadIndexError, ReadableSegment
from pykraft.log_store.segment.segment import Segment
from pykraft.log_store.timestamps import LatestLookup, TimeLookup


class Reading(LogState):
    """Finds stored records between log start and log end, by offset, by time and by leader epoch."""

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice | None:
        """The stored bytes from the batch that holds ``offset`` on, within one segment.

        ``end_offset`` (exclusive, default the log end) bounds the batches. The slice may cut its last batch
        at ``max_bytes``; with ``at_least_one`` the first is whole however large. None when nothing is there
        to read; OFFSET_OUT_OF_RANGE outside of log start and log end. :class:`BadIndexError` if
        ``on_bad_index`` is set and the read has to be repeated when it has had the index built again.
        """
        log_end = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is outside of [{self.log_start_offset}, {log_end}]",
            )
        bound = log_end if end_offset is None or end_offset > log_end else end_offset
        try:
            piece = self._read_slice(offset, bound, max_bytes, at_least_one)
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            piece = repairing_indexes(partial(self._read_slice, offset, bound, max_bytes, at_least_one))
        if piece is not None and piece.base_offset > offset and not self.may_have_gap_at(offset):
            reason = f"offset {offset} is missing, the next batch has offset {piece.base_offset}"
            raise CorruptLogError(piece.file.path, piece.position, reason)
        return piece

    def _read_slice(self, offset: int, bound: int, max_bytes: int, at_least_one: bool) -> LogSlice | None:
        return read_slice(
            self._segments, self._base_offsets, self.log_end_offset, offset, bound, max_bytes, at_least_one
        )

    def may_have_gap_at(self, offset: int) -> bool:
        """Whether compaction may have removed the record at an offset, here or where the log came from."""
        return offset < self.compacted_offset or "compact" in self._config.cleanup_policy

    @property
    def first_stored_offset(self) -> int:
        """Where the batches begin that are stored without gaps, those below the log start too."""
        return max(self._base_offsets[0], self._whole_from)

    @property
    def first_retained_offset(self) -> int:
        """Where the segment of the log start begins: retention deletes those before it."""
        return self._base_offsets[segment_index(self._base_offsets, self.log_start_offset)]

    def offset_before(self, offset: int, size_bytes: int) -> int:
        """An offset at least so many bytes before another one, or :attr:`first_stored_offset`."""
        index = segment_index(self._base_offsets, offset)
        find = self._segments[index].offset_before
        found, left_bytes = repairing_indexes(partial(find, offset, size_bytes))
        first = self.first_stored_offset
        while left_bytes > 0 and index > 0 and found > first:
            index -= 1
            find = self._segments[index].offset_before
            found, left_bytes = repairing_indexes(partial(find, found, left_bytes))
        return max(first, found)

    def prepare_index_build(self, segment: ReadableSegment) -> IndexBuild | None:
        """A job that builds the indexes of a segment again; None if the segment is not part of the log."""
        if segment not in self._segments:
            return None
        earlier = self._segments[: self._segments.index(segment)]
        return IndexBuild(segment, self._truncations, earlier)

    def complete_index_build(self, build: IndexBuild) -> bool:
        """Use what a job has built; False if the segment has changed meanwhile: prepare another one."""
        if not self.is_as_prepared(build):
            return False
        build.adopt()
        return True

    def is_as_prepared(self, build: IndexBuild) -> bool:
        """Whether the segment of a build was neither cut, closed nor deleted meanwhile."""
        segment = build.segment
        return (
            build.truncations == self._truncations
            and build.was_sealed == segment.is_sealed
            and segment in self._segments
        )

    def scrub_segment(self, base_offset: int) -> Scrub | None:
        """The check of one segment as it is now; None if there no longer is one at that offset."""
        if base_offset not in self._base_offsets:
            return None
        index = self._base_offsets.index(base_offset)
        segment, ends = self._segments[index], [*self._base_offsets[1:], self.log_end_offset]
        has_gaps = self.may_have_gap_at(base_offset)
        check = None
        if segment.is_sealed:
            check = partial(
                IndexCheck, self._disk, self.directory, base_offset, self._config.index_interval_bytes
            )
        return Scrub(
            self._disk,
            segment.path,
            base_offset,
            segment.size_bytes,
            ends[index],
            self.epoch_cache.entries,
            has_gaps=has_gaps,
            begin_index_check=check,
        )

    def doubt_indexes(self, base_offset: int, *, transactions: bool = False) -> None:
        """The scrub found that the indexes of a segment do not match its batches: have them built again;
        ``transactions``: its transaction index, too.
        """
        for segment in self._segments:
            if segment.base_offset == base_offset and self.on_bad_index is not None:
                segment.aborted.is_bad |= transactions
                self.on_bad_index(BadIndexError(segment, "the indexes do not match the batches"))

    def has_file(self, path: str) -> bool:
        """Whether a segment's file is a part of the log."""
        return any(segment.path == path for segment in self._segments)

    def is_damage(self, error: CorruptLogError | OSError, rewrites: int) -> bool:
        """Whether the file of an error is part of the log, and was at that :attr:`rewrite_count`."""
        path = error.path if isinstance(error, CorruptLogError) else str(error.filename)
        return self.rewrite_count == rewrites and self.has_file(path)

    def iter_headers(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        read_ahead_bytes: int = SCAN_READ_AHEAD_BYTES,
    ) -> Iterator[BatchHeader]:
        """Headers of the batches that hold or follow ``start_offset``, without their records.

        Cheap enough to rebuild producer state from: no record is read unless it shares a block.
        """
        for _, _, header in self._walk(start_offset, end_offset, read_ahead_bytes):
            yield header

    def iter_stored_headers(self, start_offset: int, end_offset: int | None = None) -> Iterator[BatchHeader]:
        """As :meth:`iter_headers`, from :attr:`first_stored_offset` on: deleted records have producers."""
        first = self.first_stored_offset
        for _, _, header in self._walk(start_offset, end_offset, SCAN_READ_AHEAD_BYTES, first):
            yield header

    def iter_produced(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, Marker | None]]:
        """As :meth:`iter_stored_headers`, with markers: all that the state of producers follows from."""
        first = self.first_stored_offset
        for segment, position, header in self._walk(start_offset, end_offset, SCAN_READ_AHEAD_BYTES, first):
            marker = None
            if header.is_control:
                marker = read_stored_marker(segment.file, position, header)
            yield header, marker

    def iter_batches(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        """(header, bytes) of each whole batch that holds or follows ``start_offset``."""
        for segment, position, header in self._walk(start_offset, end_offset, HEADER_BYTES):
            yield header, segment.file.pread(position, header.size_bytes)

    def _walk(
        self,
        start_offset: int,
        end_offset: int | None,
        read_ahead_bytes: int,
        first_offset: int | None = None,
    ) -> Iterator[tuple[Segment, int, BatchHeader]]:
        bound = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        start_offset = max(start_offset, self.log_start_offset if first_offset is None else first_offset)
        extent = Extent(lambda: self.log_end_offset, self.may_have_gap_at)
        return walk(self._segments, self._base_offsets, start_offset, bound, read_ahead_bytes, extent)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch not above ``epoch`` and its exclusive end; -1/-1 if unknown (KIP-320)."""
        return self.epoch_cache.end_offset_for(epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, -1 if none."""
        return self._latest_epoch

    def prepare_lookup(self, timestamp_ms: int | None) -> TimeLookup | LatestLookup:
        """A job that finds the first record not earlier than a time, or (None) the first with the largest.

        :class:`BadIndexError` if ``on_bad_index`` is set and the look-up has to be repeated when it has had
        the index built again.
        """

        def prepare() -> TimeLookup | LatestLookup:
            args = self.log_start_offset, self.rewrite_count
            if timestamp_ms is None:
                return timestamps.prepare_latest(self._disk, self._segments, *args)
            return timestamps.prepare_lookup(self._disk, self._segments, timestamp_ms, *args)

        try:
            return prepare()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            return repairing_indexes(prepare)

    def lookup_timestamp(self, timestamp_ms: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record not earlier than ``timestamp_ms``; None if there is none below ``end_offset``.

        Blocks. A broker runs the job of :meth:`prepare_lookup` in a worker.
        """
        found = self.prepare_lookup(timestamp_ms).run()
        return found if found is None or end_offset is None or found.offset < end_offset else None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp. Blocks."""
        return self.prepare_lookup(None).run()
