"""The disk port: every byte pykraft stores goes through it.

``append`` is not ``flush``: bytes are durable only once ``flush`` has returned. Segment, index, checkpoint
and state-store code is written against this port alone, so it runs unmodified on real files
(:mod:`pykraft.runtime.os_disk`) and on a simulated disk that loses its unflushed tail
(:mod:`pykraft.runtime.simulated.memory_disk`). Faults are raised as :class:`OSError`; data that the medium
cannot read back as :class:`UnreadableError`, because it costs less than a failed write.
"""

from __future__ import annotations

import errno
from typing import Protocol

from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.file_budget import FileHolder

Buffer = bytes | bytearray | memoryview


class UnreadableError(OSError):
    """A file or directory, ``filename``, cannot be read, for example because of a bad sector (EIO).

    Other files, and writes, are not affected. Only operations that merely read raise it.
    """


def raise_if_unreadable(error: OSError, path: str) -> None:
    """Turn an error of reading ``path`` into :class:`UnreadableError` if it is an error of the medium."""
    if error.errno == errno.EIO:
        raise UnreadableError(errno.EIO, error.strerror, path) from error


class DiskFile(Protocol):
    """One open file. Writes only append; reads name their position."""

    @property
    def path(self) -> str: ...

    def append(self, data: Buffer) -> None:
        """Write all of ``data`` at the end of the file (page cache, not yet durable)."""
        ...

    def pread(self, position: int, length_bytes: int) -> bytes:
        """Up to ``length_bytes`` from ``position``; shorter only at the end of the file.

        :class:`UnreadableError` if the medium cannot read them.
        """
        ...

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read (0 at the end of the file).

        :class:`UnreadableError` if the medium cannot read them.
        """
        ...

    def size(self) -> int:
        """Current length in bytes, unflushed tail included."""
        ...

    def preallocate(self, size_bytes: int) -> None:
        """Reserve room on the medium for a file of ``size_bytes``, where the system can do that without
        changing its length. A truncation, also to the present length, gives back what is not used.
        """
        ...

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to ``size_bytes`` (not yet durable)."""
        ...

    def flush(self) -> None:
        """Return once everything appended so far survives a power loss. May block; call it off the loop."""
        ...

    def fileno(self) -> int:
        """The operating system's descriptor (for sendfile); -1 if there is none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The size of the volume that holds a directory, and the bytes that this process may still write."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """A tree of files. Paths are ordinary strings joined with ``/``."""

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for append and positioned read.

        If not ``create``: :class:`FileNotFoundError` if missing, :class:`UnreadableError` as in a read.
        """
        ...

    def register_holder(self, holder: FileHolder) -> None:
        """Register a holder of open files of this disk that can open them again: it is asked to release them
        when the process runs out of descriptors.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole file. :class:`FileNotFoundError` if missing, :class:`UnreadableError` as :meth:`list`."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace ``path`` so that a crash leaves the old or the new content, durable on return.

        Temporary file, flush, rename, flush of the directory.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Sorted names in a directory.

        :class:`FileNotFoundError` if missing, :class:`UnreadableError` if the medium cannot read it.
        """
        ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, durable on return; no error if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic replace; durable only after :meth:`flush_dir` of the parent."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; no error if it does not exist."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """The usage of the volume of a directory. :class:`OSError` if it cannot be read. May block."""
        ...

    def flush_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...
