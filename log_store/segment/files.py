"""The files of one segment: what they are named, and how they are opened, renamed and removed.

A sealed segment opens nothing until it is read. Slices that were handed out keep their files."""

from __future__ import annotations

from pykraft.log_store.indexes.index_file import IndexFile
from pykraft.log_store.indexes.offset_index import OffsetIndex
from pykraft.log_store.indexes.time_index import TimeIndex
from pykraft.log_store.indexes.transaction_index import TransactionIndex
from pykraft.runtime.disk import Disk, DiskFile

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
REBUILT_SUFFIX = ".rebuilt"
"""After the suffix of an index that is being built again."""
DELETED_SUFFIX = ".deleted"
"""After the suffix of a file that is to be removed (Kafka's file.delete.delay.ms)."""


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Kafka's name: twenty digits and a suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentFiles:
    """Offsets are absolute, positions are bytes from the start of the file."""

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
