"""A disk in memory that loses unflushed data in a crash; for tests and the simulation.

Decides what a power loss leaves: of each file the flushed bytes and any prefix of the rest (cut at
an arbitrary byte, on request followed by zeros), or the old tail if a truncation was not flushed; of each
directory the flushed entries and a prefix of the later changes, in order, as a journalling file system does.
Must never lose flushed bytes except on request (:meth:`MemoryDisk.flip_bit`,
:meth:`MemoryDisk.make_unreadable`) and never read a clock; randomness comes in with :meth:`MemoryDisk.crash`.
"""

from __future__ import annotations

import copy
import errno
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pykraft.runtime.disk import Buffer, DiskUsage, UnreadableError, raise_if_unreadable
from pykraft.runtime.file_budget import FileHolder


class RandomSource(Protocol):
    """The part of ``random.Random`` that a crash needs."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One recorded operation; ``target`` is the new name of a rename."""

    operation: str
    path: str
    target: str = ""


@dataclass(slots=True)
class _Fault:
    operation: str
    error_number: int
    path_part: str
    remaining: int


@dataclass(slots=True, eq=False)
class _Inode:
    """File content. ``data[:durable_bytes]`` survives, as ``cut_tail`` does until its cut is flushed.

    ``unreadable``: the ranges of bytes, (start, end), that cannot be read.
    """

    data: bytearray = field(default_factory=bytearray)
    durable_bytes: int = 0
    cut_tail: bytes = b""
    flush_fault: int | None = None
    unreadable: list[tuple[int, int]] = field(default_factory=list)

    def read(self, position: int, length_bytes: int, path: str) -> bytes:
        content = bytes(memoryview(self.data)[position : position + length_bytes])
        end = position + len(content)
        if any(start < end and position < stop for start, stop in self.unreadable):
            raise UnreadableError(errno.EIO, "unreadable", path)
        return content

    def truncate(self, size_bytes: int) -> None:
        self._forget_unreadable(size_bytes)
        if size_bytes < self.durable_bytes:
            self.cut_tail = bytes(self.data[size_bytes : self.durable_bytes]) + self.cut_tail
            self.durable_bytes = size_bytes
        if size_bytes < len(self.data):
            del self.data[size_bytes:]
        else:
            self.data.extend(bytes(size_bytes - len(self.data)))

    def _forget_unreadable(self, size_bytes: int) -> None:
        """Bytes written from there on are stored in other sectors."""
        self.unreadable = [
            (start, min(stop, size_bytes)) for start, stop in self.unreadable if start < size_bytes
        ]

    def flush(self) -> None:
        self.durable_bytes = len(self.data)
        self.cut_tail = b""

    def crash(self, rng: RandomSource, zero_tails: bool) -> None:
        if self.cut_tail and rng.random() < 0.5:
            self.data[self.durable_bytes :] = self.cut_tail
        else:
            kept = self.durable_bytes + rng.randrange(len(self.data) - self.durable_bytes + 1)
            lost = len(self.data) - kept
            del self.data[kept:]
            if zero_tails and rng.random() < 0.5:
                self.data.extend(bytes(lost))
            self._forget_unreadable(kept)
        self.flush()
        self.repair()

    def repair(self) -> None:
        self.flush_fault = None


@dataclass(slots=True, eq=False)
class _Directory:
    entries: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    journal: list[tuple[tuple[str, _Inode | _Directory | None], ...]] = field(default_factory=list)

    def change(self, *changes: tuple[str, _Inode | _Directory | None]) -> None:
        """One atomic change: each name gets a new node, or None to be removed."""
        _apply(self.entries, changes)
        self.journal.append(changes)

    def flush(self) -> None:
        self.durable = dict(self.entries)
        self.journal.clear()

    def repair(self) -> None:
        """Let flushes succeed again, for all files below."""
        for node in (*self.entries.values(), *self.durable.values()):
            node.repair()

    def crash(self, rng: RandomSource, zero_tails: bool) -> None:
        for changes in self.journal[: rng.randrange(len(self.journal) + 1)]:
            _apply(self.durable, changes)
        self.entries = dict(self.durable)
        self.journal.clear()
        for _, node in sorted(self.entries.items(), key=lambda item: item[0]):
            node.crash(rng, zero_tails)


def _apply(
    entries: dict[str, _Inode | _Directory], changes: tuple[tuple[str, _Inode | _Directory | None], ...]
) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class MemoryFile:
    """A handle on a :class:`MemoryDisk` file; stays readable after the file is removed, dies in a crash."""

    __slots__ = ("_disk", "_incarnation", "_inode", "_path")

    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._incarnation = disk.incarnation

    @property
    def path(self) -> str:
        return self._path

    def _alive(self) -> _Inode:
        if self._incarnation != self._disk.incarnation:
            raise OSError(errno.EBADF, "handle is closed or from before a crash", self._path)
        return self._inode

    def append(self, data: Buffer) -> None:
        inode = self._alive()
        fault = self._disk.enter("append", self._path)
        if fault is not None:
            # a disk that fills up takes part of the write first
            inode.data += memoryview(data)[: len(data) // 2]
            raise OSError(fault, "injected fault", self._path)
        inode.data += data

    def pread(self, position: int, length_bytes: int) -> bytes:
        inode = self._alive()
        if self._disk.is_broken(self._path):
            raise UnreadableError(errno.EIO, "broken directory", self._path)
        return inode.read(position, length_bytes, self._path)

    def pread_into(self, position: int, buffer: memoryview) -> int:
        chunk = self.pread(position, len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def size(self) -> int:
        return len(self._alive().data)

    def preallocate(self, size_bytes: int) -> None:
        self._alive()
        self._disk.enter_or_raise("preallocate", self._path)

    def truncate(self, size_bytes: int) -> None:
        inode = self._alive()
        self._disk.enter_or_raise("truncate", self._path)
        inode.truncate(size_bytes)

    def flush(self) -> None:
        inode = self._alive()
        fault = self._disk.enter("flush", self._path)
        inode.flush_fault = inode.flush_fault or fault
        if inode.flush_fault is not None:
            raise OSError(inode.flush_fault, "injected fault", self._path)
        inode.flush()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._incarnation = -1


VOLUME_BYTES = 1 << 40
"""The size of every volume, used or not."""


class MemoryDisk:
    """See the module. ``calls`` holds the latest operations, oldest first, for tests to inspect."""

    def __init__(self, *, recorded_calls: int = 100_000) -> None:
        self.incarnation = 0
        self.calls: deque[DiskCall] = deque(maxlen=recorded_calls)
        self._root = _Directory()
        self._faults: list[_Fault] = []
        self._broken: set[str] = set()

    def copy(self) -> MemoryDisk:
        """Another disk with the same content and bad sectors, but without faults and handles."""
        twin = MemoryDisk()
        twin._root = copy.deepcopy(self._root)
        twin._root.repair()
        return twin

    def crash(self, rng: RandomSource, *, zero_tails: bool = False) -> None:
        """Power loss: open handles die, unflushed bytes and directory changes are lost in part or whole.

        With ``zero_tails`` a file may keep its new length with zeros where its new bytes were.
        """
        self.incarnation += 1
        self._faults.clear()
        self._root.crash(rng, zero_tails)

    def inject(self, operation: str, error_number: int, *, path_part: str = "", times: int = 1) -> None:
        """Let the next ``times`` calls of ``operation`` on a path containing ``path_part`` fail.

        A failed append leaves half of its bytes behind; a file whose flush failed flushes no more until a
        crash.
        """
        self._faults.append(_Fault(operation, error_number, path_part, times))

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage one stored bit, durably."""
        self._file(path).data[position] ^= 1 << bit

    def make_unreadable(self, path: str, position: int = 0, length_bytes: int = 512) -> None:
        """Let reads of this range fail: a bad sector, until it is truncated or the file replaced."""
        self._file(path).unreadable.append((position, position + length_bytes))

    def break_directory(self, path: str) -> None:
        """Let everything in a directory fail with EIO, as on a dead disk, until :meth:`mend_directory`."""
        self._broken.add(path)

    def mend_directory(self, path: str) -> None:
        """The directory is there again, as it was."""
        self._broken.discard(path)

    def is_broken(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{directory}/") for directory in self._broken)

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Let a check read what the product cannot at the moment; bad sectors stay."""
        faults, broken = self._faults, self._broken
        self._faults, self._broken = [], set()
        try:
            yield
        finally:
            self._faults, self._broken = faults, broken

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        """Record a call; the error number to fail with, if a fault is due."""
        self.calls.append(DiskCall(operation, path, target))
        if self._broken and (self.is_broken(path) or self.is_broken(target)):
            return errno.EIO
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path and fault.remaining > 0:
                fault.remaining -= 1
                return fault.error_number
        return None

    def enter_or_raise(self, operation: str, path: str, target: str = "") -> None:
        fault = self.enter(operation, path, target)
        if fault is not None:
            raise OSError(fault, "injected fault", path)

    def _enter_reading(self, operation: str, path: str) -> None:
        try:
            self.enter_or_raise(operation, path)
        except OSError as error:
            raise_if_unreadable(error, path)
            raise

    def open(self, path: str, *, create: bool = True) -> MemoryFile:
        if create:
            self.enter_or_raise("open", path)
        else:
            self._enter_reading("open", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = _Inode()
            parent.change((name, node))
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(self, path, node)

    def register_holder(self, holder: FileHolder) -> None:
        """Do nothing: memory has no descriptors that could run out."""

    def read(self, path: str) -> bytes:
        self._enter_reading("read", path)
        inode = self._file(path)
        return inode.read(0, len(inode.data), path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.enter_or_raise("write_atomic", path)
        temporary = f"{path}.tmp"
        file = self.open(temporary)
        file.truncate(0)
        file.append(data)
        file.flush()
        file.close()
        self.rename(temporary, path)
        self.flush_dir(path.rpartition("/")[0])

    def exists(self, path: str) -> bool:
        return not self.is_broken(path) and self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return not self.is_broken(path) and isinstance(self._find(path), _Directory)

    def list(self, path: str) -> list[str]:
        self._enter_reading("list", path)
        return sorted(self._directory(path).entries)

    def make_dirs(self, path: str) -> None:
        """Durable on return, as on the real adapter."""
        self.enter_or_raise("make_dirs", path)
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                directory.change((name, node))
                directory.flush()
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.enter_or_raise("rename", source, target)
        node = self._find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        replaced = new_parent.entries.get(new_name)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        if old_parent is new_parent:
            old_parent.change((old_name, None), (new_name, node))
        else:
            new_parent.change((new_name, node))
            old_parent.change((old_name, None))

    def remove(self, path: str) -> None:
        self.enter_or_raise("remove", path)
        if self._find(path) is None:
            return
        parent, name = self._parent(path)
        if isinstance(parent.entries[name], _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        parent.change((name, None))

    def usage(self, path: str) -> DiskUsage:
        self.enter_or_raise("usage", path)
        self._directory(path)
        return DiskUsage(VOLUME_BYTES, VOLUME_BYTES)

    def remove_tree(self, path: str) -> None:
        self.enter_or_raise("remove_tree", path)
        if self._find(path) is not None:
            parent, name = self._parent(path)
            parent.change((name, None))

    def flush_dir(self, path: str) -> None:
        self.enter_or_raise("flush_dir", path)
        self._directory(path).flush()

    def _find(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _file(self, path: str) -> _Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _parts(path)
        return self._directory("/".join(parents)), name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]
