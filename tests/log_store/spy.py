"""A disk that records the calls to another disk, to prove in tests that a flush came before a reply.

Kill -9 cannot reveal a missing fsync (the page cache survives), so tests wrap the real adapter in this one.
"""

from pykraft.runtime.disk import Buffer, Disk, DiskFile, DiskUsage
from pykraft.runtime.file_budget import FileHolder
from pykraft.runtime.simulated.memory_disk import DiskCall


class SpyFile:
    """Records the calls that change a file, then forwards them."""

    __slots__ = ("_calls", "_file")

    def __init__(self, file: DiskFile, calls: list[DiskCall]) -> None:
        self._file = file
        self._calls = calls

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, data: Buffer) -> None:
        self._calls.append(DiskCall("append", self.path))
        self._file.append(data)

    def pread(self, position: int, length_bytes: int) -> bytes:
        return self._file.pread(position, length_bytes)

    def pread_into(self, position: int, buffer: memoryview) -> int:
        return self._file.pread_into(position, buffer)

    def size(self) -> int:
        return self._file.size()

    def preallocate(self, size_bytes: int) -> None:
        self._calls.append(DiskCall("preallocate", self.path))
        self._file.preallocate(size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._calls.append(DiskCall("truncate", self.path))
        self._file.truncate(size_bytes)

    def flush(self) -> None:
        self._file.flush()
        self._calls.append(DiskCall("flush", self.path))  # recorded only after it has happened

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class SpyDisk:
    """Wraps a :class:`Disk`; ``calls`` is in order, and contains a flush only after it has returned."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.calls: list[DiskCall] = []

    def open(self, path: str, *, create: bool = True) -> SpyFile:
        file = self._disk.open(path, create=create)
        self.calls.append(DiskCall("open", path))
        return SpyFile(file, self.calls)

    def register_holder(self, holder: FileHolder) -> None:
        self._disk.register_holder(holder)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._disk.write_atomic(path, data)
        self.calls.append(DiskCall("write_atomic", path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._disk.is_dir(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_dirs(self, path: str) -> None:
        self.calls.append(DiskCall("make_dirs", path))
        self._disk.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.calls.append(DiskCall("rename", source, target))
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.calls.append(DiskCall("remove", path))
        self._disk.remove(path)

    def usage(self, path: str) -> DiskUsage:
        return self._disk.usage(path)

    def remove_tree(self, path: str) -> None:
        self.calls.append(DiskCall("remove_tree", path))
        self._disk.remove_tree(path)

    def flush_dir(self, path: str) -> None:
        self._disk.flush_dir(path)
        self.calls.append(DiskCall("flush_dir", path))
