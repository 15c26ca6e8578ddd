"""Files that are opened, used and closed at random under a small budget, next to a model of what is open.

Some holders never close anything, others only when it is urgent; the system may run out of descriptors before
the budget does. The count is always right, a file can be opened as long as any holder could close one, more
are open than the budget allows only if no holder closes any, and no opening asks all holders.
"""

import contextlib
import errno
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.os_disk import OsDisk, OsFile

MOST_ASKED = 2 * 64 + 64
"""Of one opening: twice for room in the budget, and once for a descriptor that the system refuses."""


class Holder:
    """``manner``: what it does when it is asked to close its file."""

    def __init__(self, world: "World", manner: str) -> None:
        self.world = world
        self.manner = manner
        self.is_used = True
        self.file: OsFile | None = None

    def open(self) -> None:
        if self.file is None:
            self.file = self.world.open()
            self.world.disk.register_holder(self)
        self.is_used = True

    def release_files(self, *, is_urgent: bool) -> bool:
        self.world.asked += 1
        if self.manner == "stubborn" or (self.is_used and not is_urgent):
            self.is_used = self.manner == "busy"
            return False
        self.close()
        return True

    def close(self) -> None:
        if self.file is not None:
            file, self.file = self.file, None
            if self.world.rng.random() < 0.5:
                file.close()
                file.close()


class World:
    def __init__(self, seed: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = Random(seed)
        self.path = path
        self.budget = FileBudget(self.rng.choice((40, 60)))  # 32 in reserve
        self.disk = OsDisk(self.budget)
        self.asked = 0
        self.number = 0
        self.most_descriptors = 1_000_000
        self.counts: Counter[str] = Counter()
        manners = self.rng.choice((("idle",), ("idle", "busy"), ("idle", "busy", "stubborn"), ("stubborn",)))
        count = (10, 60, 500)[seed % 3]
        self.holders = [Holder(self, self.rng.choice(manners)) for _ in range(count)]
        self.loose: list[OsFile] = []
        real = os.open

        def system_open(path: str, flags: int, mode: int = 0o777, **options: Any) -> int:
            if str(path).startswith(str(self.path)) and self.open_files() >= self.most_descriptors:
                raise OSError(errno.EMFILE, "too many open files", path)
            return real(path, flags, mode, **options)

        monkeypatch.setattr(os, "open", system_open)
        for holder in self.holders[: count // 4]:
            holder.open()

    def open_files(self) -> int:
        return sum(holder.file is not None for holder in self.holders) + len(self.loose)

    def open(self) -> OsFile:
        self.number += 1
        self.asked = 0
        could_close = [one for one in self.holders if one.file is not None and one.manner != "stubborn"]
        room = self.budget.files_limit
        try:
            file = self.disk.open(f"{self.path}/{self.number % 50}")
        except OSError:
            left = [one for one in could_close if one.file is not None]
            assert not left or self.asked >= 64, "no descriptor, though a holder could close its file"
            self.counts["refused"] += 1
            raise
        if not any(one.manner == "stubborn" for one in self.holders) and len(self.loose) < room:
            assert self.open_files() < room or not could_close, "more files are open than may be"
        assert self.asked <= MOST_ASKED, "an opening asks all holders"
        return file

    def step(self) -> None:
        rng = self.rng
        self.most_descriptors = rng.choice((1_000_000, 1_000_000, 6, 20))
        with contextlib.suppress(OSError):
            roll = rng.random()
            if roll < 0.6:
                rng.choice(self.holders).open()
            elif roll < 0.7:
                rng.choice(self.holders).close()
            elif roll < 0.8 and len(self.loose) < 5:
                self.loose.append(self.open())
            elif roll < 0.9 and self.loose:
                self.loose.pop().close()
            elif roll < 0.95:
                self.disk.write_atomic(f"{self.path}/checkpoint", b"x")
            else:
                self.disk.open(f"{self.path}/absent", create=False)
        assert self.budget.files == self.open_files(), "files are counted while they are open"


@pytest.mark.parametrize("seed", range(24))
def test_files_are_counted_and_closed_when_there_are_too_many(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed, tmp_path, monkeypatch)
    for _ in range(250):
        world.step()
