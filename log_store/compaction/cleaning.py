"""One round of compaction over one log, a small step at a time.

Three walks: over all that may be compacted, to find what transactions aborted; over the dirty part, to learn
the newest offset of each key (until the map is full: the round then ends there); and over everything below
that offset, oldest segment first, to write each group of neighbouring segments again without the records that
have been superseded. Every batch is checked before it is believed: a batch that is written again gets a new
CRC, which must not hide damage.

The round reads segments that no longer change, through descriptors of its own, and writes files that are not
yet part of the log; so its steps can run in threads beside appends and reads. Only the log itself puts a
finished segment in place (:meth:`.Log.replace_segments`). Oldest first matters: when a tombstone goes, what
it deleted has gone before, in files that are durable.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

from pykraft.kafka_protocol.markers import read_kind
from pykraft.kafka_protocol.record_spans import iter_spans
from pykraft.kafka_protocol.records import HEADER_BYTES, BatchHeader, read_header
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.compaction.candidates import Cleanable
from pykraft.log_store.compaction.cleaned_segment import CleanedSegmentWriter
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.record_filter import (
    RECORDS_PER_PAUSE,
    ActiveProducers,
    BatchFilter,
    Work,
    read_body,
)
from pykraft.log_store.compaction.segment_files import CLEANED_SUFFIX, remove_files
from pykraft.log_store.compaction.transactions import CleanedTransactions, TransactionScan
from pykraft.log_store.epoch_cache import Epochs, find_wrong_epoch
from pykraft.log_store.indexes.time_index import TIME_ENTRY_BYTES
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.scan import CheckedScan, iter_headers, read_stored_marker
from pykraft.log_store.segment.segment import MAX_RELATIVE_OFFSET, Segment
from pykraft.runtime.disk import Disk

MAX_SEGMENTS = 64
"""In one group: all its files are renamed in one turn of the event loop."""


class SourceSegment(Protocol):
    """The input of the rules. ``end_offset``: where the next segment begins."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


def group_segments(segments: Sequence[SourceSegment], config: LogConfig) -> Iterator[slice]:
    """Neighbours whose sizes, index entries and offsets together fit into one segment, oldest first.

    The sizes are those before the compaction; a later round puts together what has become small.
    """
    start = 0
    while start < len(segments):
        end = start + 1
        size = segments[start].size_bytes
        while end < len(segments) and end - start < MAX_SEGMENTS:
            size += segments[end].size_bytes
            span = segments[end].end_offset - 1 - segments[start].base_offset
            if size > config.most_segment_bytes or span > MAX_RELATIVE_OFFSET:
                break
            if _index_bytes(size, config) > config.index_bytes:
                break
            end += 1
        yield slice(start, end)
        start = end


def _index_bytes(size_bytes: int, config: LogConfig) -> int:
    """The most that a time index of so much log can take; the offset index is smaller."""
    return (size_bytes // max(config.index_interval_bytes, HEADER_BYTES) + 1) * TIME_ENTRY_BYTES


class Step(NamedTuple):
    """Work since the last step: bytes read and written, records looked at."""

    io_bytes: int
    records: int


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """A compacted segment that waits to take the place of ``sources``, neighbours in the log.

    ``truncations``: of the log when the round began. What superseded the records that are missing may have
    been truncated since. ``end_offset``: all of it is below.
    """

    cleaned: Segment
    sources: tuple[Segment, ...]
    truncations: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Source:
    """A segment of the log that does not change. ``end_offset``: where the next one begins."""

    segment: Segment
    end_offset: int
    size_bytes: int

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset


class CleaningRound:
    """One round over ``sources``, the segments of a log from the oldest on up to ``cleanable.end_offset``.

    ``newest`` is an empty map. ``now_ms`` is the wall clock. ``truncations``: of the log until now.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        sources: Sequence[Source],
        cleanable: Cleanable,
        *,
        epochs: Epochs,
        producers: ActiveProducers,
        newest: OffsetMap,
        now_ms: int,
        truncations: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._sources = list(sources)
        self._first_dirty_offset = cleanable.first_dirty_offset
        self._epochs = epochs
        self._producers = producers
        self._newest = newest
        self._now_ms = now_ms
        self._truncations = truncations
        self._scan = TransactionScan()
        self._unfinished: int | None = None
        """The base offset of the segment that is being written."""

    @property
    def end_offset(self) -> int:
        """The exclusive end of what the round has made clean, when it is complete."""
        return max(self._first_dirty_offset, self._newest.end_offset)

    def steps(self) -> Iterator[Step | Replacement]:
        """The work of the round. Each replacement has to be put in place, durably, before the next step.

        :class:`CorruptLogError` and :class:`OSError` name the file; :class:`ProtocolError` if records cannot
        be decoded.
        """
        for records in self._producers.gather():
            yield Step(0, records)
        yield from self._find_transactions()
        yield from self._map_keys()
        sources = [source for source in self._sources if source.base_offset < self._newest.end_offset]
        transactions = CleanedTransactions(self._scan.aborted)
        rules = BatchFilter(
            self._newest, transactions, self._producers, self._now_ms, self._config.delete_retention_ms
        )
        for group in group_segments(sources, self._config):
            yield from self._clean(sources[group], rules)

    def discard(self) -> None:
        """Remove what was written of an unfinished segment; for a round that does not go on. Blocks."""
        if self._unfinished is not None:
            remove_files(self._disk, self._directory, [self._unfinished], CLEANED_SUFFIX)
            self._unfinished = None

    # -- what was aborted ------------------------------------------------------------------------------

    def _find_transactions(self) -> Iterator[Step]:
        """Walk over all headers; no segment is compacted that reaches into a transaction under way."""
        for source in self._sources:
            file = self._disk.open(source.segment.path, create=False)
            try:
                headers = iter_headers(file, 0, source.size_bytes)
                for seen, (position, header) in enumerate(headers, start=1):
                    marker = None
                    if header.is_control:
                        marker = read_stored_marker(file, position, header)
                    self._scan.note(header, marker)
                    if seen % RECORDS_PER_PAUSE == 0:
                        yield Step(RECORDS_PER_PAUSE * HEADER_BYTES, RECORDS_PER_PAUSE)
            finally:
                file.close()
        open_offset = self._scan.first_open_offset
        while open_offset is not None and self._sources and self._sources[-1].end_offset > open_offset:
            self._sources.pop()

    # -- what is newest --------------------------------------------------------------------------------

    def _map_keys(self) -> Iterator[Step]:
        newest = self._newest
        transactions = CleanedTransactions(self._scan.aborted)
        newest.end_offset = self._first_dirty_offset
        for source in self._sources:
            if source.end_offset <= self._first_dirty_offset:
                continue
            for header, batch in self._batches(source):
                if header.is_control:
                    transactions.is_needless(header, read_kind(header, batch))
                elif not transactions.is_aborted(header):
                    has_room = yield from self._map_batch(header, batch)
                    if not has_room:
                        return
                newest.end_offset = max(newest.end_offset, header.next_offset)
                yield Step(len(batch), 1)
            newest.end_offset = source.end_offset

    def _map_batch(self, header: BatchHeader, batch: bytes) -> Generator[Step, None, bool]:
        """Note the keys of a batch; False if the map is full: it then ends before the record without room."""
        newest, first_offset = self._newest, self._first_dirty_offset
        seen = 0
        if header.record_count == 0:
            return True
        for span in iter_spans(read_body(header, batch), header.record_count):
            offset = header.base_offset + span.offset_delta
            if span.key is not None and offset >= first_offset and not newest.put(span.key, offset):
                newest.end_offset = offset
                return False
            seen += 1
            if seen == RECORDS_PER_PAUSE:
                yield Step(0, seen)
                seen = 0
        return True

    # -- what stays ------------------------------------------------------------------------------------

    def _clean(self, sources: Sequence[Source], rules: BatchFilter) -> Iterator[Step | Replacement]:
        """Write one segment in place of ``sources``."""
        self._unfinished = sources[0].base_offset
        writer = CleanedSegmentWriter(
            self._disk,
            self._directory,
            sources[0].base_offset,
            self._epochs,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        epoch = 0
        for source in sources:
            for header, batch in self._batches(source):
                written = writer.size_bytes
                kept = yield from _in_steps(rules.filter(header, batch))
                if kept is not None:
                    writer.write(header if kept is batch else read_header(kept), kept)
                epoch = header.partition_leader_epoch
                yield Step(len(batch) + writer.size_bytes - written, 1)
        cleaned = writer.finish(sources[-1].end_offset, epoch, rules.transactions.take_index())
        yield from self._check(Source(cleaned, sources[-1].end_offset, cleaned.size_bytes))
        replaced = tuple(source.segment for source in sources)
        yield Replacement(cleaned, replaced, self._truncations, self.end_offset)
        self._unfinished = None

    def _check(self, cleaned: Source) -> Iterator[Step]:
        """Read a segment that was just written, trusting it no more than those that it replaces."""
        try:
            for header, _ in self._batches(cleaned):
                yield Step(header.size_bytes, 1)
        except CorruptLogError as error:
            raise AssertionError(f"a compacted segment is wrong: {error}") from error

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches of a segment, checked as by the scrub."""
        path = source.segment.path
        file = self._disk.open(path, create=False)
        try:
            scan = CheckedScan(file, 0, source.base_offset, -1, end=source.size_bytes)
            for position, header in scan:
                if header.next_offset > source.end_offset:
                    raise CorruptLogError(
                        path, position, f"offset {header.last_offset} is not of this segment"
                    )
                if wrong := find_wrong_epoch(self._epochs, header):
                    raise CorruptLogError(path, position, wrong)
                yield header, scan.batch(header)
            if scan.bad is not None:
                raise CorruptLogError(path, scan.bad.position, scan.bad.reason)
            if scan.position < source.size_bytes:
                raise CorruptLogError(path, scan.position, "the file ends here")
        finally:
            file.close()


def _in_steps(work: Work) -> Generator[Step, None, bytes | None]:
    """The result of ``work``."""
    while True:
        try:
            records = next(work)
        except StopIteration as done:
            result: bytes | None = done.value
            return result
        yield Step(0, records)
