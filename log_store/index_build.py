"""Indexes that are found wrong: checked against the batches of their segment, and built from them again.

Both walk over all headers of a segment, so they run in a worker, through descriptors of their own. What was
built replaces the old index on the event loop (:meth:`.Segment.adopt_indexes`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pykraft.kafka_protocol.markers import ABORT, Marker
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.compaction.transactions import TransactionScan
from pykraft.log_store.indexes.transaction_index import BadEntryError, decode_index
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES, iter_headers, read_stored_marker
from pykraft.log_store.segment.files import (
    INDEX_SUFFIX,
    REBUILT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from pykraft.log_store.segment.reading import BadIndexError, ReadableSegment
from pykraft.log_store.segment.segment import Segment
from pykraft.runtime.disk import Disk, UnreadableError

SPARSE_INTERVALS = 16
"""An index with gaps of so many index intervals has lost entries, or the interval was made much shorter."""

logger = logging.getLogger(__name__)

T = TypeVar("T")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class IndexBuild:
    """The indexes of one segment as it is now. ``truncations``: of its log, for who completes the build.

    ``earlier``: the segments before it. Its transaction index, if that is bad, is built from all of them,
    since a transaction may have begun in any.
    """

    def __init__(
        self, segment: ReadableSegment, truncations: int, earlier: Sequence[ReadableSegment] = ()
    ) -> None:
        self.segment = segment
        self.truncations = truncations
        self.was_sealed = segment.is_sealed
        #: The entries before these are replaced.
        self.first_kept = (segment.offset_index.count, segment.time_index.count)
        self.has_transactions = segment.aborted.is_bad
        self._transaction_sources = [(one.path, one.size_bytes) for one in (*earlier, segment)]
        self._end = segment.size_bytes
        self.built = Segment(
            segment.disk,
            segment.path.rpartition("/")[0],
            segment.base_offset,
            created_ms=0,
            index_interval_bytes=segment.index_interval_bytes,
            index_ending=REBUILT_SUFFIX,
        )

    def run(self) -> None:
        """Write both indexes under other names. Blocks.

        :class:`CorruptLogError` if the segment itself is damaged.
        """
        built = self.built
        built.begin_indexes()
        next_offset = built.base_offset
        for position, header in iter_headers(built.file, 0, self._end, SCAN_READ_AHEAD_BYTES):
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise CorruptLogError(
                    built.path, position, f"offset falls from {next_offset} to {header.base_offset}"
                )
            built.note_batch(position, header)
            next_offset = header.next_offset
        if self.was_sealed:
            built.seal()
        else:
            for index in (built.offset_index, built.time_index):
                index.storage.complete()
        if self.has_transactions:
            self._build_transactions()
        built.close()

    def adopt(self) -> None:
        """Use what was built."""
        self.segment.adopt_indexes(self.built, self.first_kept, has_transactions=self.has_transactions)

    def _build_transactions(self) -> None:
        scan = TransactionScan()
        for path, end in self._transaction_sources:
            scan.aborted.clear()
            file = self.built.disk.open(path, create=False)
            try:
                for position, header in iter_headers(file, 0, end, SCAN_READ_AHEAD_BYTES):
                    marker = None
                    if header.is_control:
                        marker = read_stored_marker(file, position, header)
                    scan.note(header, marker)
            finally:
                file.close()
        self.built.aborted.clear()
        for transaction in scan.aborted:
            self.built.aborted.append(transaction)


def repairing_indexes(action: Callable[[], T], segments: Sequence[Segment] = ()) -> T:
    """Run an action, and again after the indexes that it found bad were built from their segments. Blocks.

    ``segments``: of the log, if the action looks for transactions.
    """
    repaired: set[ReadableSegment] = set()
    while True:
        try:
            return action()
        except BadIndexError as error:
            segment = error.segment
            if segment in repaired:
                raise CorruptLogError(segment.path, 0, str(error)) from error
            repaired.add(segment)
            logger.warning("%s; the indexes are built again", error)
            build = IndexBuild(segment, 0, [one for one in segments if one.base_offset < segment.base_offset])
            build.run()
            build.adopt()


class IndexCheck:
    """Compares the index files of a sealed segment with its batches, which are noted one by one."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        """Reads both files. Blocks."""
        self._base_offset = base_offset
        self._most_bytes = SPARSE_INTERVALS * index_interval_bytes
        self._is_whole = True
        self._offsets = self._read(disk, segment_path(directory, base_offset, INDEX_SUFFIX), _OFFSET_ENTRY)
        self._times = self._read(disk, segment_path(directory, base_offset, TIME_INDEX_SUFFIX), _TIME_ENTRY)
        self._next_offset_entry = next(self._offsets, None)
        self._next_time_entry = next(self._times, None)
        self._newest = (-1, base_offset)
        self._newest_entry = (-1, base_offset)
        self._unindexed_bytes = 0
        self.is_wrong = not self._is_whole
        self._aborted = self._read_aborted(disk, segment_path(directory, base_offset, TXN_INDEX_SUFFIX))
        self._scan = TransactionScan()
        self._markers: set[int] = set()

    def _read(self, disk: Disk, path: str, entry: struct.Struct) -> Iterator[tuple[int, int]]:
        try:
            data = disk.read(path)
        except (FileNotFoundError, UnreadableError):
            data = b""
            self._is_whole = False
        self._is_whole = self._is_whole and len(data) % entry.size == 0
        return entry.iter_unpack(data[: len(data) - len(data) % entry.size])

    def _read_aborted(self, disk: Disk, path: str) -> frozenset[int] | None:
        """The offsets of the markers in the transaction index; None if it makes no sense."""
        try:
            entries = decode_index(disk.read(path), self._base_offset, path)
        except FileNotFoundError:
            return frozenset()
        except (BadEntryError, UnreadableError):
            return None
        return frozenset(one.last_offset for one in entries)

    def note(self, position: int, header: BatchHeader) -> None:
        """The next batch."""
        relative = header.last_offset - self._base_offset
        if self._next_offset_entry is not None and self._next_offset_entry[1] <= position:
            self.is_wrong |= self._next_offset_entry != (relative, position)
            self._next_offset_entry = next(self._offsets, None)
            self._unindexed_bytes = 0
        self.is_wrong |= self._unindexed_bytes > self._most_bytes
        self._unindexed_bytes += header.size_bytes
        if header.max_timestamp > self._newest[0]:
            self._newest = (header.max_timestamp, relative)
        if self._next_time_entry is not None and self._next_time_entry[1] <= relative:
            self.is_wrong |= self._next_time_entry != self._newest or self._next_time_entry[1] != relative
            self._newest_entry = self._next_time_entry
            self._next_time_entry = next(self._times, None)

    def note_transaction(self, header: BatchHeader, marker: Marker | None) -> None:
        """The next batch, if it is a marker or in a transaction."""
        if marker is not None and marker.kind == ABORT:
            self._markers.add(header.base_offset)
        self._scan.note(header, marker)

    def has_wrong_transactions(self) -> bool:
        """After the last batch: whether the transaction index lacks what is aborted within the segment, or
        has what is not in it. (Where other transactions began is not known from one segment.)
        """
        here = {one.last_offset for one in self._scan.aborted}
        return self._aborted is None or not here <= self._aborted <= self._markers

    def finish(self) -> bool:
        """After the last batch: whether both indexes are right."""
        is_complete = self._newest[0] < 0 or self._newest_entry == self._newest
        return (
            not self.is_wrong
            and is_complete
            and self._next_offset_entry is None
            and self._next_time_entry is None
        )
