"""One segment: a file of whole batches named by its base offset, with its two sparse indexes.

Decides positions: where a batch with a given offset is, when an index entry is due (KIP-33 for time), and
how to find the end of the newest segment. A transaction index goes along with them. A sealed segment opens
nothing until it is read. Must never change a stored byte, and only the newest segment grows. It is long
because growing, loading after a crash and finding share the size of the file, what is known of its times, and
both indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import TypeAlias

from pykraft.kafka_protocol.crc import crc32c
from pykraft.kafka_protocol.records import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from pykraft.log_store.indexes.index_file import IndexFile
from pykraft.log_store.indexes.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from pykraft.log_store.indexes.time_index import TIME_ENTRY_BYTES, TimeIndex
from pykraft.log_store.indexes.transaction_index import AbortedTransaction, BadEntryError, TransactionIndex
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.scan import MIN_LENGTH, READ_AHEAD_BYTES, SCAN_READ_AHEAD_BYTES, iter_headers
from pykraft.runtime.disk import Buffer, Disk, DiskFile, UnreadableError

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
REBUILT_SUFFIX = ".rebuilt"
"""After the suffix of an index that is being built again."""
DELETED_SUFFIX = ".deleted"
"""After the suffix of a file that is to be removed (Kafka's file.delete.delay.ms)."""
MAX_RELATIVE_OFFSET = (1 << 31) - 1
MAX_SEGMENT_BYTES = (1 << 31) - 1
MAX_OFFSET = (1 << 63) - 1

PREALLOCATED_BYTES = 64 << 20
"""How far ahead of its records a file is preallocated, for topics that ask for it."""
BLOCKS_WITHOUT_ENTRY = 64
"""A look-up reads so many blocks, and four times the index interval, before it doubts the index."""

_OFFSETS_OF_BATCH = Struct(">qi11xi").unpack_from  # base offset, length, last offset delta of a batch header
_OFFSETS_BYTES = 27

FoundBatch: TypeAlias = tuple[int, int, int, int]
"""Position, base offset, next offset, size in bytes."""


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Kafka's name: twenty digits and a suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


class BadIndexError(Exception):
    """An index is missing, or does not lead to the batches of its segment: build it again, and repeat.

    See :class:`~pykraft.log_store.index_build.IndexBuild`.
    """

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(f"{segment.path}: {reason}")
        self.segment = segment


class Segment:
    """See the module. Offsets are absolute, positions are bytes from the start of the file."""

    __slots__ = (
        "__weakref__",
        "_bytes_since_index",
        "_file",
        "_first_timestamp_ms",
        "_indexes_checked",
        "_indexes_rebuilt",
        "_jitter",
        "_max_timestamp",
        "_size_bytes",
        "_was_used",
        "aborted",
        "base_offset",
        "created_ms",
        "disk",
        "index_interval_bytes",
        "is_durable",
        "is_removed",
        "is_sealed",
        "offset_index",
        "path",
        "positions",
        "room_bytes",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        index_ending: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        self.offset_index = OffsetIndex(
            disk, segment_path(directory, base_offset, INDEX_SUFFIX) + index_ending, base_offset
        )
        self.time_index = TimeIndex(
            disk, segment_path(directory, base_offset, TIME_INDEX_SUFFIX) + index_ending, base_offset
        )
        #: The aborted transactions whose markers are here.
        self.aborted = TransactionIndex(
            disk, segment_path(directory, base_offset, TXN_INDEX_SUFFIX) + index_ending, base_offset
        )
        # Sealed and flushed since: no later flush needs to touch it.
        self.is_durable = False
        #: How far the file is preallocated; None if it is not to be.
        self.room_bytes: int | None = None
        self.is_removed = False
        """The files are deleted, or about to be, because the log no longer needs them."""
        self.is_sealed = True
        self._was_used = False  # since it was last asked to release its files
        # Positions found by earlier reads: the next fetch of a consumer starts where its last one ended.
        self.positions: dict[int, int] = {}
        self.disk = disk
        self._file: DiskFile | None = None
        self._size_bytes = -1
        self._first_timestamp_ms: int | None = None
        self._max_timestamp: tuple[int, int] | None = None  # (timestamp, last offset of its batch)
        self._bytes_since_index = 0
        self._indexes_checked = False
        self._indexes_rebuilt = False
        self._jitter = -1  # not yet drawn

    @property
    def file(self) -> DiskFile:
        self._was_used = True
        file = self._file
        if file is None:
            file = self._file = self.disk.open(self.path, create=False)
            self.disk.register_holder(self)
        return file

    @property
    def size_bytes(self) -> int:
        if self._size_bytes < 0:
            self._size_bytes = self.file.size()
        return self._size_bytes

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

    def use_suffix(self, suffix: str) -> None:
        """Let the names of the files end with ``suffix`` from now on. Readers keep the files they have."""
        self._file = None
        directory = self.path.rpartition("/")[0]
        self.path = segment_path(directory, self.base_offset, LOG_SUFFIX + suffix)
        self.offset_index.storage.use_path(segment_path(directory, self.base_offset, INDEX_SUFFIX + suffix))
        self.time_index.storage.use_path(
            segment_path(directory, self.base_offset, TIME_INDEX_SUFFIX + suffix)
        )
        self.aborted.storage.use_path(segment_path(directory, self.base_offset, TXN_INDEX_SUFFIX + suffix))

    # -- growing ---------------------------------------------------------------------------------------

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

    # -- reading ---------------------------------------------------------------------------------------

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
        if entry is not None and not self._is_batch_at(*entry):
            raise BadIndexError(self, f"no batch ends with offset {entry[0]} at position {entry[1]}")
        position = 0 if entry is None else entry[1]
        end = self.size_bytes
        blocks_left = BLOCKS_WITHOUT_ENTRY + self.index_interval_bytes // 1024
        while position < end:
            if blocks_left == 0 and not self._indexes_rebuilt:
                raise BadIndexError(self, f"the index leads nowhere near offset {offset}")
            blocks_left -= 1
            block = file.pread(position, READ_AHEAD_BYTES)
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
                raise BadIndexError(self, f"no batch ends with offset {entry[0]} at position {entry[1]}")
            return entry[0], 0
        return self.base_offset, size_bytes - position

    def _is_batch_at(self, last_offset: int, position: int) -> bool:
        """Whether there is a batch with this last offset, as an index entry claims."""
        block = self.file.pread(position, _OFFSETS_BYTES) if position >= 0 else b""
        if len(block) < _OFFSETS_BYTES:
            return False
        base_offset, length, last_offset_delta = _OFFSETS_OF_BATCH(block, 0)
        return length >= MIN_LENGTH and bool(base_offset + last_offset_delta == last_offset)

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
        return BatchHeader._make(HEADER.unpack(self.file.pread(position, HEADER_BYTES)))

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
        self, built: Segment, first_kept: tuple[int, int], *, has_transactions: bool = False
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
            raise BadIndexError(self, f"no batch ends with offset {entry[0]} at position {entry[1]}")
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

    # -- life ------------------------------------------------------------------------------------------

    def files_to_flush(self, *, sealed: bool) -> list[DiskFile | str]:
        """Those that are open, and the paths of those that were released.

        Indexes are flushed once, when the segment is sealed: until then they can be rebuilt. The transaction
        index is flushed with the records, as it cannot be rebuilt from one segment.
        """
        files = [self._file or self.path]
        indexes = [self.offset_index.storage, self.time_index.storage] if sealed else []
        if self.aborted.storage.is_unflushed:
            indexes.append(self.aborted.storage)
        return [*files, *(index.open_file or index.path for index in indexes)]

    def remove(self) -> None:
        """Unlink the files. Slices already handed out stay readable: they hold the descriptor."""
        self.is_removed = True
        self._file = None
        self.disk.remove(self.path)
        for index in self._index_files():
            index.remove()

    def mark_deleted(self) -> list[str]:
        """Rename the files (:data:`DELETED_SUFFIX`), to be removed later, and return their new paths.

        Slices already handed out stay readable, as with :meth:`remove`. A start removes what it finds.
        """
        self.is_removed = True
        self._file = None
        paths = [self.path]
        for index in self._index_files():
            if index.exists():
                paths.append(index.path)
            index.forget()
        for path in paths:
            self.disk.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX for path in paths]

    def use_directory(self, directory: str) -> None:
        """The directory has been renamed: open the files under their new paths."""
        self._file = None
        self.path = segment_path(directory, self.base_offset)
        self.offset_index.storage.use_path(segment_path(directory, self.base_offset, INDEX_SUFFIX))
        self.time_index.storage.use_path(segment_path(directory, self.base_offset, TIME_INDEX_SUFFIX))
        self.aborted.storage.use_path(segment_path(directory, self.base_offset, TXN_INDEX_SUFFIX))

    def release_files(self, *, is_urgent: bool) -> bool:
        """See :class:`~pykraft.runtime.file_budget.FileHolder`. Readers keep their files.

        The growing segment keeps its file. One that is sealed and not yet flushed gives it up only where the
        next file could not be opened otherwise: a file that is opened again reports a failed write-back, too,
        but not if the system has forgotten it under memory pressure.
        """
        if not self.is_sealed:
            return True  # and it registers again when it is sealed
        if not is_urgent and (self._was_used or not self.is_durable):
            self._was_used = False
            return False
        self._file = None
        return True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        for index in self._index_files():
            index.close()

    def _index_files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offset_index.storage, self.time_index.storage, self.aborted.storage
