"""A file of fixed-size index entries, opened only when it is needed and written in groups.

Index files hold nothing that cannot be rebuilt from the segment, so their entries are written without a flush
and a few at a time: entries that a crash loses are rebuilt. Unlike Kafka's they are never preallocated; the
entries themselves are Kafka's bytes, so a directory can be read by either.
"""

from __future__ import annotations

from pykraft.runtime.disk import Disk, DiskFile, UnreadableError

PENDING_ENTRIES = 64
"""Entries kept in memory before they are written: at most this much is rebuilt after a kill."""


class IndexFile:
    """Entries of ``entry_bytes`` each; ``count`` and ``entry`` include only what is in the file."""

    __slots__ = (
        "__weakref__",
        "_disk",
        "_file",
        "_pending",
        "_pending_limit_bytes",
        "_was_used",
        "entry_bytes",
        "is_unflushed",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry_bytes: int) -> None:
        self.path = path
        self.entry_bytes = entry_bytes
        self._disk = disk
        self._file: DiskFile | None = None
        self._was_used = False  # since it was last asked to release its file
        # Changed by this process and not flushed since. Only an orderly stop looks at it.
        self.is_unflushed = False
        self._pending = bytearray()
        self._pending_limit_bytes = PENDING_ENTRIES * entry_bytes

    @property
    def file(self) -> DiskFile:
        self._was_used = True
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path)
            self._disk.register_holder(self)
        return file

    @property
    def open_file(self) -> DiskFile | None:
        """The file, if it is open."""
        return self._file

    def use_path(self, path: str) -> None:
        """The file was, or is to be, renamed; it is opened again when it is needed."""
        self._file = None
        self.path = path

    def exists(self) -> bool:
        return self._file is not None or self._disk.exists(self.path)

    @property
    def is_whole(self) -> bool:
        """Whether the file holds whole entries only."""
        return self.file.size() % self.entry_bytes == 0

    @property
    def count(self) -> int:
        return self.file.size() // self.entry_bytes

    def entry(self, index: int) -> bytes:
        return self.file.pread(index * self.entry_bytes, self.entry_bytes)

    def read_all(self) -> bytes:
        """Every whole entry; nothing if the file is missing, or cannot be read and is removed."""
        if not self.exists():
            return b""
        try:
            return self.file.pread(0, self.count * self.entry_bytes)
        except UnreadableError:
            self.remove()
            return b""

    def append(self, entry: bytes) -> None:
        self._pending += entry

    @property
    def is_pending_long(self) -> bool:
        """Whether it is time to write the pending entries."""
        return len(self._pending) >= self._pending_limit_bytes

    def write_pending(self) -> None:
        """Write the pending entries to the operating system."""
        if self._pending:
            self.file.append(bytes(self._pending))
            self._pending.clear()
            self.is_unflushed = True

    def flush(self) -> None:
        """Make what was written durable. Blocks."""
        if self.is_unflushed:
            self.file.flush()
            self.is_unflushed = False

    def complete(self) -> None:
        """The last write; the file exists afterwards, even if empty."""
        assert self.file is not None
        self.write_pending()

    def truncate(self, count: int) -> None:
        """Keep ``count`` entries, pending ones included."""
        if not self.exists():
            in_file = 0
        else:
            in_file = min(count, self.count)
            if self.file.size() != in_file * self.entry_bytes:
                self.file.truncate(in_file * self.entry_bytes)
                self.is_unflushed = True
        del self._pending[(count - in_file) * self.entry_bytes :]

    def replace_by(self, other: IndexFile) -> None:
        """Take the file of another index, in which everything is written, and forget the own entries."""
        other.close()
        self._disk.rename(other.path, self.path)
        self.forget()
        self.is_unflushed = True

    def release_files(self, *, is_urgent: bool) -> bool:
        """See :class:`~pykraft.runtime.file_budget.FileHolder`. Pending entries stay in memory, and entries
        written without a flush can be rebuilt from the segment.
        """
        if self._was_used and not is_urgent:
            self._was_used = False
            return False
        self._file = None
        return True

    def remove(self) -> None:
        """Unlink the file; a reader that still holds it can continue."""
        self.forget()
        self._disk.remove(self.path)

    def forget(self) -> None:
        """Release the file, whose segment is deleted, and the pending entries."""
        self._file = None
        self._pending.clear()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
