"""The disk port on real files.

Maps appends, flushes and atomic replacements to system calls. A flush must never be reported as done after
the kernel has once refused it: after a failed fsync the dirty pages may be marked clean, so that a second
fsync succeeds without having written anything. A file whose flush failed stays failed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import threading

from pykraft.runtime.disk import Buffer, DiskUsage, raise_if_unreadable
from pykraft.runtime.file_budget import FileBudget, FileHolder

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


_KEEP_SIZE = 1
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


def _preallocate(descriptor: int, size_bytes: int, path: str) -> None:
    """Linux's fallocate(2), which Python offers only in a form that changes the length of the file."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # for this call only: it is not made by every node

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, _KEEP_SIZE, 0, size_bytes) != 0:
        number = ctypes.get_errno()
        if number not in _NOT_SUPPORTED:  # a file system that cannot do it
            raise OSError(number, os.strerror(number), path)


def _sync_data(descriptor: int) -> None:
    """Write data and size to the medium; on macOS plain fsync writes only to the drive's cache."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


class OsFile:
    """One descriptor opened for append and positioned reads. Closed when its last reference is dropped, so
    that a reader with a slice of a deleted segment can finish.
    """

    __slots__ = ("_budget", "_descriptor", "_flush_fault", "_path", "_size_bytes")

    def __init__(self, path: str, descriptor: int, budget: FileBudget | None = None) -> None:
        self._path = path
        self._budget = budget
        self._descriptor = descriptor
        if budget is not None:
            budget.file_opened()
        self._size_bytes = os.fstat(descriptor).st_size
        self._flush_fault: OSError | None = None

    @property
    def path(self) -> str:
        return self._path

    def append(self, data: Buffer) -> None:
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            error.filename = self._path
            raise
        if written == len(data):
            self._size_bytes += written
            return
        self._append_rest(memoryview(data)[written:])

    def _append_rest(self, rest: memoryview) -> None:
        """Write the rest after a short write (rare: disk nearly full, more than 2 GiB), or raise OSError."""
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self._size_bytes = os.fstat(self._descriptor).st_size

    def pread(self, position: int, length_bytes: int) -> bytes:
        try:
            return os.pread(self._descriptor, length_bytes, position)
        except OSError as error:
            raise_if_unreadable(error, self._path)
            raise

    def pread_into(self, position: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._descriptor, [buffer], position)
        except OSError as error:
            raise_if_unreadable(error, self._path)
            raise

    def size(self) -> int:
        return self._size_bytes

    def preallocate(self, size_bytes: int) -> None:
        _preallocate(self._descriptor, size_bytes, self._path)

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            error.filename = self._path
            raise
        self._size_bytes = size_bytes

    def flush(self) -> None:
        if self._flush_fault is not None:
            raise OSError(self._flush_fault.errno, "an earlier flush of this file failed", self._path)
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            self._flush_fault = error
            error.filename = self._path
            raise

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._budget is not None:
                self._budget.file_closed()

    def __del__(self) -> None:
        # __init__ may have failed before the slots were set
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class OsDisk:
    """The operating system's file tree. Its files count against ``budget``, if one is given. ``read_only``:
    they are opened for reading, as a read-only file system and files of others require."""

    def __init__(self, budget: FileBudget | None = None, *, read_only: bool = False) -> None:
        self._budget = budget
        self._flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND)
        # Locks by path: a flush in a thread and the event loop may replace the same checkpoint at the same
        # time.
        self._replacing: dict[str, threading.Lock] = {}

    def open(self, path: str, *, create: bool = True) -> OsFile:
        try:
            return self._open(path, os.O_CREAT if create else 0)
        except OSError as error:
            if not create:
                raise_if_unreadable(error, path)
            raise

    def _open(self, path: str, flags: int) -> OsFile:
        flags |= self._flags
        budget = self._budget
        if budget is None:
            return OsFile(path, os.open(path, flags, 0o644))
        budget.make_room()
        try:
            return OsFile(path, os.open(path, flags, 0o644), budget)
        except OSError as error:
            # Descriptors that are not counted have used them up: holders may still release some.
            if error.errno not in _NO_DESCRIPTOR or not budget.free_some():
                raise
        return OsFile(path, os.open(path, flags, 0o644), budget)

    def register_holder(self, holder: FileHolder) -> None:
        if self._budget is not None:
            self._budget.register(holder)

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise_if_unreadable(error, path)
            raise

    def write_atomic(self, path: str, data: bytes) -> None:
        with self._replacing.setdefault(path, threading.Lock()):
            temporary = f"{path}.tmp"
            file = self.open(temporary)
            try:
                file.truncate(0)  # a crash may have left an older file
                file.append(data)
                file.flush()
            finally:
                file.close()
            self.rename(temporary, path)
            self.flush_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise_if_unreadable(error, path)
            raise

    def make_dirs(self, path: str) -> None:
        """Durable on return: a vote would be lost if a power loss lost its directory."""
        missing = []
        current = path
        while not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current) or "."
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)
            self.flush_dir(os.path.dirname(directory) or ".")

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def usage(self, path: str) -> DiskUsage:
        volume = os.statvfs(path)
        return DiskUsage(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def remove_tree(self, path: str) -> None:
        import shutil  # with the modules of every archive format

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def flush_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
