"""One segment: a file of whole batches named by its base offset, with its two sparse indexes.

Decides positions: where a batch with a given offset is, when an index entry is due (KIP-33 for time), and
how to find the end of the newest segment. A transaction index goes along with them. Must never change a
stored byte, and only the newest segment grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_protocol.crc import crc32c
from pykraft.kafka_protocol.records import LOG_OVERHEAD_BYTES, BatchHeader
from pykraft.log_store.indexes.offset_index import OFFSET_ENTRY_BYTES
from pykraft.log_store.indexes.time_index import TIME_ENTRY_BYTES
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES, iter_headers
from pykraft.log_store.segment.reading import BadIndexError, ReadableSegment
from pykraft.runtime.disk import Buffer

MAX_RELATIVE_OFFSET = (1 << 31) - 1
MAX_SEGMENT_BYTES = (1 << 31) - 1
MAX_OFFSET = (1 << 63) - 1
PREALLOCATED_BYTES = 64 << 20
"""How far ahead of its records a file is preallocated, for topics that ask for it."""


class Segment(ReadableSegment):
    """See the module. It grows here, and is loaded here to grow again."""

    __slots__ = ()

    def create(self) -> None:
        """Make the file of a new newest segment. Leftovers of the same name are emptied."""
        self._file = self.disk.open(self.path)
        if self._file.size():
            self._file.truncate(0)
        self._size_bytes = 0
        self.aborted.clear()
        self.begin_indexes()

    def begin_indexes(self) -> None:
        """Empty the indexes: every batch is to be noted, from the first on."""
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self._bytes_since_index = 0
        self._max_timestamp = (-1, self.base_offset)
        self._indexes_checked = True
        self.is_sealed = False

    def append(self, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        """One write of whole batches that the caller knows to fit."""
        if self.room_bytes is not None and self._size_bytes + len(data) > self.room_bytes:
            self._preallocate(self._size_bytes + len(data))
        self.file.append(data)
        position = self._size_bytes
        for header in headers:
            self.note_batch(position, header)
            position += header.batch_length + LOG_OVERHEAD_BYTES
        self._size_bytes += len(data)
        assert position == self._size_bytes, "headers do not describe the appended bytes"

    def must_roll(
        self, config: LogConfig, headers: Sequence[BatchHeader], last_offset: int, now_ms: int
    ) -> bool:
        """Every reason but size: relative offsets, a full index, age by the records' own time."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self._size_bytes:
            return False
        if self.offset_index.count >= config.index_bytes // OFFSET_ENTRY_BYTES:
            return True
        if self.time_index.count >= config.index_bytes // TIME_ENTRY_BYTES - 1:
            return True
        first_ms = self.first_timestamp_ms
        most_ms = config.max_segment_ms - self._jitter_ms(config)
        if first_ms < 0:
            return now_ms - self.created_ms > most_ms
        newest_ms = headers[0].max_timestamp
        if len(headers) > 1:
            newest_ms = max(header.max_timestamp for header in headers)
        return newest_ms - first_ms > most_ms

    def _jitter_ms(self, config: LogConfig) -> int:
        """How much earlier this segment is closed, so that not all partitions roll at once: another time for
        each segment, and the same again after a restart."""
        if config.segment_jitter_ms == 0:
            return 0
        if self._jitter < 0:
            self._jitter = crc32c(self.path.encode())
        return self._jitter % min(config.segment_jitter_ms, config.max_segment_ms)

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Note a batch: largest timestamp, and an index entry if one is due.

        :class:`CorruptLogError` if an entry is due and its offset cannot be of this segment.
        """
        last_offset = header.base_offset + header.last_offset_delta
        newest = self._max_timestamp
        if newest is None or header.max_timestamp > newest[0]:
            newest = self._max_timestamp = (header.max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp_ms = header.max_timestamp
        if self._bytes_since_index > self.index_interval_bytes:
            self._check_offset(last_offset, position)
            self.offset_index.append(last_offset, position)
            self._index_time()
            self._bytes_since_index = 0
            if self.offset_index.storage.is_pending_long:
                self.write_pending_indexes()
        self._bytes_since_index += header.batch_length + LOG_OVERHEAD_BYTES

    def load(self, until_offset: int | None = None, *, after_clean_stop: bool = False) -> tuple[int, int]:
        """Make this the growing segment again: (position, end offset) of what is before ``until_offset``.

        Reads headers from the last good index entry on and fills in what the index files lack; index
        entries at or above ``until_offset`` (default: none) are dropped.
        """
        self.is_sealed = False
        self.is_durable = False
        self.positions.clear()
        self._size_bytes = self.file.size()
        until = MAX_OFFSET if until_offset is None else until_offset
        position = self._load_indexes(until, trust_times=after_clean_stop)
        if until_offset is not None:
            self.aborted.truncate_to_offset(until_offset)
        if not after_clean_stop:
            for index in self._index_files():
                index.is_unflushed = index.exists()  # a process that was killed may have cut it last
        end_offset = self.base_offset
        headers = iter_headers(self.file, position, self._size_bytes)
        # The batch at the limit may be torn: it is not read.
        while end_offset < until and position < self._size_bytes:
            position, header = next(headers)
            if header.next_offset > until:
                break
            self.note_batch(position, header)
            end_offset = header.next_offset
            position += header.batch_length + LOG_OVERHEAD_BYTES
        return position, end_offset

    def _load_indexes(self, until_offset: int, *, trust_times: bool) -> int:
        """Load what is usable of both indexes; the position from which batches must be noted."""
        self._indexes_checked = True
        self._bytes_since_index = 0
        self._first_timestamp_ms = None
        index, times = self.offset_index, self.time_index
        if self._size_bytes == 0:
            index.start_empty()
            times.start_empty()
        else:
            index.load()
            times.load()
            index.truncate_to_offset(until_offset)
            last = index.last_entry
            if last is not None and not self._is_batch_at(*last):
                index.start_empty()
                last = None
            # The time index may not reach further than the offset index: noting continues where that ends.
            times.truncate_to_offset(last[0] + 1 if last is not None else self.base_offset)
            if last is not None:
                try:
                    newest = times.last_entry
                    if newest is not None and not self._is_time_of_batch(*newest):
                        times.start_empty()
                        newest = None
                except BadIndexError:  # by an earlier entry
                    self.begin_indexes()
                    return 0
                if newest is None or not trust_times or newest[0] < self._header_at(last[1]).max_timestamp:
                    newest = self._newest_before(last[1])
                self._max_timestamp = newest
                return last[1]
        self._max_timestamp = (-1, self.base_offset)
        return 0

    def _newest_before(self, end: int) -> tuple[int, int]:
        """The largest timestamp before a position, as :attr:`max_timestamp`.

        A power loss may have removed more of the time index than of the offset index, so the batches after
        its last entry are read again. Usually there are none, since timestamps rise.
        """
        newest, position = self.time_index.last_entry, 0
        if newest is None:
            newest = (-1, self.base_offset)
        else:
            position = self.offset_index.lookup(newest[1])
        for _, header in iter_headers(self.file, position, end, SCAN_READ_AHEAD_BYTES):
            if header.max_timestamp > newest[0]:
                newest = (header.max_timestamp, header.last_offset)
        return newest

    def _index_time(self) -> None:
        timestamp_ms, offset = self.max_timestamp
        self._check_offset(offset, 0)
        self.time_index.maybe_append(timestamp_ms, offset)

    def _check_offset(self, offset: int, position: int) -> None:
        """No CRC covers the base offset of a batch, and an index entry has no room for every number."""
        if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise CorruptLogError(self.path, position, f"offset {offset} is not of this segment")

    def truncate(self, position: int) -> None:
        """Truncate the file of the growing segment; the caller has loaded it up to there."""
        if position < self.file.size():
            self.file.truncate(position)
        self._size_bytes = position

    def seal(self) -> None:
        """The segment grows no more: complete its index files and leave memory (KIP-33: last time entry)."""
        self.release_room()
        self._complete_indexes()
        self.is_sealed = True
        self.is_durable = False
        self.disk.register_holder(self)

    def release_room(self) -> None:
        """Give back what was preallocated and not used."""
        if self.room_bytes is not None:
            self.file.truncate(self.size_bytes)
            self.room_bytes = None

    def _preallocate(self, size_bytes: int) -> None:
        """In steps, because reserving a whole segment at once would hold the event loop."""
        self.room_bytes = size_bytes + PREALLOCATED_BYTES
        self.file.preallocate(self.room_bytes)

    def _complete_indexes(self) -> None:
        self._index_time()
        self.offset_index.seal()
        self.time_index.seal()

    def write_pending_indexes(self) -> None:
        """Hand index entries still in memory to the operating system.

        Times first: batches that the offset index covers are not read again after a kill (see :meth:`load`).
        """
        self.time_index.storage.write_pending()
        self.offset_index.storage.write_pending()

    def flush_indexes(self) -> bool:
        """Write and flush the indexes of the growing segment; whether there was anything to flush. Blocks."""
        self.write_pending_indexes()
        files = [index for index in self._index_files() if index.is_unflushed]
        for index in files:
            index.flush()
        return bool(files)
