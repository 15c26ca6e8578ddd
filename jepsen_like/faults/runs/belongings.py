"""What a run makes on a cluster that somebody else runs, in a file of the run.

A runner that is killed cannot remove it; the next one finds the file and does. If it is kept on purpose,
after an anomaly, the file has another name, and says what is where.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from pykraft.jepsen_like.faults.clients.names import Sort
from pykraft.testing.processes.keeper import start_time

_FILE: Final = "made-on-cluster.json"
_KEPT: Final = "kept-on-cluster.json"


class Belongings(msgspec.Struct):
    """``topics`` and ``groups`` at ``bootstrap_servers``; ``runner`` is the id and the start of a process."""

    bootstrap_servers: str
    runner: tuple[int, int | None]
    topics: list[str]
    groups: list[str]

    @classmethod
    def none_yet(cls, bootstrap_servers: str) -> Self:
        """For the calling process."""
        return cls(bootstrap_servers, (os.getpid(), start_time(os.getpid())), [], [])

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups)

    def note(self, sort: Sort, name: str) -> None:
        """Call this before it is made."""
        (self.topics if sort == "topic" else self.groups).append(name)

    def write(self, directory: Path) -> None:
        """Whole or not at all."""
        file = directory / f"{_FILE}.new"
        file.write_bytes(msgspec.json.encode(self))
        file.rename(directory / _FILE)


def keep(directory: Path) -> Path:
    """What is in the directory's file stays where it is; the file that says so."""
    return (directory / _FILE).rename(directory / _KEPT)


def forget(directory: Path) -> None:
    """All of it has been removed."""
    (directory / _FILE).unlink(missing_ok=True)


def left_behind(out_dir: Path) -> Iterator[tuple[Path, Belongings]]:
    """Belongings of runs below ``out_dir`` whose runners are gone, each with its directory. Where that cannot
    be known (there is no ``/proc``) a run counts as going on."""
    for file in out_dir.glob(f"*/{_FILE}"):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode(file.read_bytes(), type=Belongings)
            pid, started = found.runner
            if started is not None and start_time(pid) != started:
                yield file.parent, found
