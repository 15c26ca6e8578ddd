"""The disk port on an operating system that is simulated: short writes, faults, and a power loss in any call.

What was reported as done is there afterwards; what was under way is there as a whole or not at all.
"""

import errno
import os
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.kafka_protocol.primitives import Buffer
from pykraft.runtime import os_disk
from pykraft.runtime.os_disk import OsDisk, OsFile
from pykraft.runtime.simulated.memory_disk import MemoryDisk, MemoryFile


class PowerLossError(BaseException):
    """The call during which it came never returned."""


class Kernel:
    """The calls of :mod:`os` that the port makes, on a medium that remembers what was flushed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.medium = MemoryDisk(recorded_calls=0)
        self.files: dict[int, MemoryFile | str] = {}
        self.opened = 0
        self.lost: set[int] = set()
        self.calls_left = 0
        self.fault_chance = 0.0
        self.path = SimpleNamespace(dirname=os.path.dirname, isdir=self.medium.is_dir)
        self.O_CREAT, self.O_DIRECTORY = os.O_CREAT, os.O_DIRECTORY
        self.O_RDWR, self.O_RDONLY, self.O_APPEND, self.O_CLOEXEC = 2, 0, 0, 0

    def _enter(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise PowerLossError

    def crash(self) -> None:
        self.files.clear()
        self.calls_left = 0
        self.medium.crash(self.rng)

    def _fails(self) -> bool:
        return self.rng.random() < self.fault_chance

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        self._enter()
        self.opened += 1
        is_directory = flags & os.O_DIRECTORY
        opened = path if is_directory else self.medium.open(path, create=bool(flags & os.O_CREAT))
        self.files[self.opened] = opened
        return self.opened

    def _file(self, descriptor: int) -> MemoryFile:
        file = self.files[descriptor]
        assert isinstance(file, MemoryFile)
        return file

    def fstat(self, descriptor: int) -> Any:
        return SimpleNamespace(st_size=self._file(descriptor).size())

    def write(self, descriptor: int, data: Buffer) -> int:
        self._enter()
        if self._fails():
            raise OSError(errno.ENOSPC, "no space left")
        written = self.rng.randint(1, len(data)) if self.rng.random() < 0.3 else len(data)
        self._file(descriptor).append(memoryview(data)[:written])
        return written

    def fdatasync(self, descriptor: int) -> None:
        self._enter()
        if self._fails():
            self.lost.add(descriptor)  # its pages are clean now, and were never written
            raise OSError(errno.EIO, "input/output error")
        if descriptor not in self.lost:
            self._file(descriptor).flush()

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        self._enter()
        self._file(descriptor).truncate(size_bytes)

    def fsync(self, descriptor: int) -> None:
        self._enter()
        directory = self.files[descriptor]
        assert isinstance(directory, str)
        self.medium.flush_dir(directory)

    def replace(self, source: str, target: str) -> None:
        self._enter()
        self.medium.rename(source, target)

    def mkdir(self, path: str) -> None:
        self._enter()
        parent, name = self.medium._parent(path)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, "there is one", path)
        made = type(parent)()
        parent.change((name, made))

    def close(self, descriptor: int) -> None:
        self.files.pop(descriptor, None)


class World:
    """Files that are replaced, files that grow, and directories for them."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.kernel = Kernel(self.rng)
        monkeypatch.setattr(os_disk, "os", self.kernel)
        self.disk = OsDisk()
        #: What may be found under a name: what was there, and what was to take its place.
        self.replaced: dict[str, set[bytes]] = {}
        self.directories = [""]
        self.flushed: dict[str, bytes] = {}
        self.number = 0

    def step(self) -> None:
        self.kernel.fault_chance = self.rng.choice((0.0, 0.2))
        if self.rng.random() < 0.4:
            self.kernel.calls_left = self.rng.randrange(1, 12)
        try:
            self.rng.choice((self.replace, self.replace, self.make_dirs, self.grow))()
        except PowerLossError:
            self.kernel.crash()
            self.check()
        self.kernel.calls_left = 0
        if self.rng.random() < 0.2:
            self.kernel.crash()
            self.check()

    def content(self) -> bytes:
        self.number += 1
        return b"%d " % self.number * self.rng.randrange(1, 40)

    def replace(self) -> None:
        path = f"{self.rng.choice(self.directories)}/checkpoint"
        content = self.content()
        self.replaced.setdefault(path, {b""}).add(content)
        try:
            self.disk.write_atomic(path, content)
        except OSError:
            return
        self.replaced[path] = {content}

    def make_dirs(self) -> None:
        self.number += 1
        path = f"{self.rng.choice(self.directories)}/{self.number}/below"
        self.disk.make_dirs(path)
        self.directories.append(path)

    def grow(self) -> None:
        """As a log does; what fails is tried once more, as a log does not."""
        self.number += 1
        path = f"{self.rng.choice(self.directories)}/{self.number}.log"
        file = self.disk.open(path)
        try:
            self._grow(file, path)
        finally:
            file.close()

    def _grow(self, file: OsFile, path: str) -> None:
        self.disk.flush_dir(os.path.dirname(path) or "/")
        for _ in range(self.rng.randrange(1, 8)):
            try:
                if self.rng.random() < 0.4:
                    file.flush()
                    self.flushed[path] = self.kernel.medium.read(path)
                else:
                    file.append(self.content())
            except OSError:
                pass
            assert file.size() == len(self.kernel.medium.read(path))

    def check(self) -> None:
        """After a power loss; what was found stays."""
        medium = self.kernel.medium
        for directory in self.directories:
            assert medium.is_dir(directory), directory
        for path, contents in self.replaced.items():
            found = medium.read(path) if medium.exists(path) else b""
            assert found in contents, f"{path}: {found!r}"
            contents &= {found}
        for path, content in self.flushed.items():
            assert medium.read(path).startswith(content), path


@pytest.mark.parametrize("seed", range(60))
def test_what_was_done_is_there_after_a_power_loss(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed, monkeypatch)
    for _ in range(60):
        world.step()
    world.kernel.crash()
    world.check()
