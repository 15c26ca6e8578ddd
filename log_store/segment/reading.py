"""Look-ups in a segment: a batch by its offset, an offset by a time, the end of what is stored.

Each index entry that a look-up uses is checked against the batch that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import TypeAlias

from pykraft.kafka_protocol.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header
from pykraft.log_store.indexes.transaction_index import AbortedTransaction, BadEntryError
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.scan import MIN_LENGTH, READ_AHEAD_BYTES, iter_headers
from pykraft.log_store.segment.files import SegmentFiles
from pykraft.runtime.disk import UnreadableError

BLOCKS_WITHOUT_ENTRY = 64
"""A look-up reads so many blocks, and four times the index interval, before it doubts the index."""
_OFFSETS_OF_BATCH = Struct(">qi11xi").unpack_from  # base offset, length, last offset delta of a batch header
_OFFSETS_BYTES = 27
FoundBatch: TypeAlias = tuple[int, int, int, int]
"""Position, base offset, next offset, size in bytes."""


def _begins_with_batch(block: bytes, last_offset: int) -> bool:
    """Whether there is a batch with this last offset."""
    if len(block) < _OFFSETS_BYTES:
        return False
    base_offset, length, last_offset_delta = _OFFSETS_OF_BATCH(block, 0)
    return length >= MIN_LENGTH and bool(base_offset + last_offset_delta == last_offset)


class BadIndexError(Exception):
    """An index is missing, or does not lead to the batches of its segment: build it again, and repeat.

    See :class:`~pykraft.log_store.index_build.IndexBuild`.
    """

    def __init__(self, segment: ReadableSegment, reason: str) -> None:
        super().__init__(f"{segment.path}: {reason}")
        self.segment = segment


class ReadableSegment(SegmentFiles):
    """Found by the two sparse indexes, and by a scan from their entries on."""

    __slots__ = ()

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the batch that holds it); (-1, base offset) if none.

        :class:`BadIndexError` if the time index does not tell.
        """
        if self._max_timestamp is None:
            self.check_indexes()
            with self._doubting_unreadable_indexes():
                entry = self.time_index.last_entry
            if entry is None:
                if self.first_timestamp_ms >= 0:
                    raise BadIndexError(self, "the time index is empty")
                entry = (-1, self.base_offset)
            elif not self._is_time_of_batch(*entry):
                raise BadIndexError(self, f"no batch has the timestamp and offset {entry}")
            self._max_timestamp = entry
        return self._max_timestamp

    @contextmanager
    def _doubting_unreadable_indexes(self) -> Iterator[None]:
        try:
            yield
        except UnreadableError as error:
            raise BadIndexError(self, str(error)) from error

    @property
    def first_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch, from which the age of the segment counts; -1 if none."""
        if self._first_timestamp_ms is None:
            if not self.size_bytes:
                return -1
            _, header = next(iter_headers(self.file, 0, self.size_bytes, HEADER_BYTES))
            self._first_timestamp_ms = header.max_timestamp
        return self._first_timestamp_ms

    def find(self, offset: int) -> FoundBatch | None:
        """The first batch whose last offset is ≥ ``offset``.

        Costs an index look-up, which is checked, and a scan of at most the index interval and one batch.
        :class:`BadIndexError` if the index leads to another batch, or to none, or not near enough.
        """
        if not self._indexes_checked:
            self.check_indexes()
        file = self.file
        try:
            entry = self.offset_index.lookup_entry(offset)
        except UnreadableError as error:
            raise BadIndexError(self, str(error)) from error
        position = 0 if entry is None else entry[1]
        end = self.size_bytes
        if entry is not None and not 0 <= position < end:
            raise self._leads_nowhere(entry)
        blocks_left = BLOCKS_WITHOUT_ENTRY + self.index_interval_bytes // 1024
        while position < end:
            if blocks_left == 0 and not self._indexes_rebuilt:
                raise BadIndexError(self, f"the index leads nowhere near offset {offset}")
            blocks_left -= 1
            block = file.pread(position, READ_AHEAD_BYTES)
            if entry is not None:
                if not _begins_with_batch(block, entry[0]):
                    raise self._leads_nowhere(entry)
                entry = None
            at, last = 0, len(block) - _OFFSETS_BYTES
            while at <= last:
                base_offset, length, last_offset_delta = _OFFSETS_OF_BATCH(block, at)
                if length < MIN_LENGTH or position + at + length + LOG_OVERHEAD_BYTES > end:
                    raise CorruptLogError(self.path, position + at, f"batch length is {length}")
                if base_offset + last_offset_delta >= offset:
                    next_offset = base_offset + last_offset_delta + 1
                    return position + at, base_offset, next_offset, length + LOG_OVERHEAD_BYTES
                at += length + LOG_OVERHEAD_BYTES
            if at == 0:
                raise CorruptLogError(self.path, position, "batch header is cut short")
            position += at
        return None

    def batch_at(self, position: int) -> FoundBatch:
        """The batch at a position that an earlier read has found."""
        block = self.file.pread(position, _OFFSETS_BYTES)
        if len(block) < _OFFSETS_BYTES:
            raise CorruptLogError(self.path, position, "batch header is cut short")
        base_offset, length, last_offset_delta = _OFFSETS_OF_BATCH(block, 0)
        return position, base_offset, base_offset + last_offset_delta + 1, length + LOG_OVERHEAD_BYTES

    def offset_before(self, offset: int, size_bytes: int) -> tuple[int, int]:
        """An offset at least so many bytes before the batch of another one, and 0; or the first offset of the
        segment, and how many bytes are still wanted."""
        found = self.find(offset)
        position = self.size_bytes if found is None else found[0]
        with self._doubting_unreadable_indexes():
            entry = self.offset_index.lookup_position(position - size_bytes)
        if entry is not None:
            if not self._is_batch_at(*entry):
                raise self._leads_nowhere(entry)
            return entry[0], 0
        return self.base_offset, size_bytes - position

    def _is_batch_at(self, last_offset: int, position: int) -> bool:
        """Whether there is a batch with this last offset, as an index entry claims."""
        return position >= 0 and _begins_with_batch(self.file.pread(position, _OFFSETS_BYTES), last_offset)

    def _leads_nowhere(self, entry: tuple[int, int]) -> BadIndexError:
        return BadIndexError(self, f"no batch ends with offset {entry[0]} at position {entry[1]}")

    def find_time(self, timestamp_ms: int) -> int:
        """An offset below which every record is earlier than ``timestamp_ms``, from the time index."""
        with self._doubting_unreadable_indexes():
            entry = self.time_index.lookup_entry(timestamp_ms)
        if entry is None:
            return self.base_offset
        if not self._is_time_of_batch(*entry):
            raise BadIndexError(self, f"no batch has the timestamp and offset {entry}")
        return entry[1]

    def _header_at(self, position: int) -> BatchHeader:
        return read_header(self.file.pread(position, HEADER_BYTES))

    def _is_time_of_batch(self, timestamp_ms: int, last_offset: int) -> bool:
        """Whether there is a batch with this last offset and largest timestamp."""
        found = self.find(last_offset)
        if found is None:
            return False
        header = self._header_at(found[0])
        return (header.max_timestamp, header.last_offset) == (timestamp_ms, last_offset)

    def check_indexes(self) -> None:
        """A first look at the indexes of a sealed segment. :class:`BadIndexError` if they make no sense."""
        if self._indexes_checked:
            return
        with self._doubting_unreadable_indexes():
            is_sane = self.offset_index.is_sane(self.size_bytes) and self.time_index.is_sane()
        if not is_sane:
            raise BadIndexError(self, "an index is missing, or is no index of it")
        self._indexes_checked = True

    def adopt_indexes(
        self, built: ReadableSegment, first_kept: tuple[int, int], *, has_transactions: bool = False
    ) -> None:
        """Replace the indexes by those of ``built``, and keep the entries from ``first_kept`` on (offset
        index, time index), which were added meanwhile. ``has_transactions``: its transaction index was built,
        too."""
        self.offset_index.adopt(built.offset_index, first_kept[0])
        self.time_index.adopt(built.time_index, first_kept[1])
        if has_transactions:
            self.aborted.adopt(built.aborted)
        if self.is_sealed:
            self._max_timestamp = built._max_timestamp
        self._indexes_checked = self._indexes_rebuilt = True

    def read_end_offset(self) -> int:
        """The end position of the batches of a sealed segment, exclusive; read from the last index entry on.

        :class:`CorruptLogError` if the file does not end with a whole batch, :class:`BadIndexError` if an
        index is wrong there. Leaves no file open.
        """
        self.check_indexes()
        with self._doubting_unreadable_indexes():
            entry, newest = self.offset_index.last_entry, self.time_index.last_entry
        if entry is not None and not self._is_batch_at(*entry):
            raise self._leads_nowhere(entry)
        end_offset, newest_ms = self.base_offset, -1
        for _, header in iter_headers(self.file, 0 if entry is None else entry[1], self.size_bytes):
            end_offset = header.next_offset
            newest_ms = max(newest_ms, header.max_timestamp)
            if newest == (header.max_timestamp, header.last_offset):
                self._max_timestamp = newest
        if newest_ms > self.max_timestamp[0]:
            raise BadIndexError(self, f"the time index ends before the timestamp {newest_ms}")
        self.close()
        return end_offset

    def offset_after(self, position: int) -> int | None:
        """An offset that no record before ``position`` reaches, from the index; None if it does not tell."""
        if not self._indexes_checked:
            self.check_indexes()
        with self._doubting_unreadable_indexes():
            entry = self.offset_index.first_entry_from(position)
        return None if entry is None else entry[0]

    def collect_aborted(self, offset: int, bound: int) -> tuple[list[AbortedTransaction], bool]:
        """See :meth:`.TransactionIndex.collect`. :class:`BadIndexError` if an entry makes no sense."""
        try:
            return self.aborted.collect(offset, bound)
        except (BadEntryError, UnreadableError) as error:
            self.aborted.is_bad = True
            raise BadIndexError(self, str(error)) from error
