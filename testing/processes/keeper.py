"""Ends the processes of a run whose runner is gone, even if that was killed.

A keeper is a process that does nothing but wait for its standard input to end, which happens with its
runner. Then it kills the process groups that it was told of and that are still there. It identifies a process
by its id and the time at which it was started, so that no stranger with the same id is hit. What it was told
is also in a file, for the case that both were killed: :func:`end_leftovers`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_FILE: Final = "processes"
_CLOSE_TIMEOUT_S: Final = 10.0
_START_TIME_FIELD: Final = 19
"""The place behind the name in ``/proc/PID/stat``."""


class Keeper:
    """``directory`` is the run's."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / _FILE).open("w", encoding="ascii")
        self._note(os.getpid())
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def watch(self, pid: int) -> None:
        """``pid`` leads its own process group."""
        line = self._note(pid)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _note(self, pid: int) -> str:
        line = f"{pid} {start_time(pid)}\n"
        self._file.write(line)
        self._file.flush()
        return line

    def close(self) -> None:
        """End what is left, and the keeper; may be called twice."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_CLOSE_TIMEOUT_S)
        self._file.close()
        Path(self._file.name).unlink(missing_ok=True)


def end_leftovers(out_dir: Path) -> list[int]:
    """Kill what runs below ``out_dir`` that are gone have left behind; the ids of those processes."""
    ended = []
    for file in out_dir.glob(f"**/{_FILE}"):
        lines = list(_lines(file.read_text(encoding="ascii").splitlines()))
        if not lines or _is_alive(*lines[0]):  # the runner, which may not have written its line yet
            continue
        ended += _end(lines[1:])
        file.unlink(missing_ok=True)
    return ended


def keep(lines: Iterable[str]) -> None:
    """Run the keeper: read to the end, then kill."""
    _end(list(_lines(lines)))


def _end(processes: Iterable[tuple[int, int]]) -> list[int]:
    ended = []
    for pid, started in processes:
        if _is_alive(pid, started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _is_alive(pid: int, started: int) -> bool:
    return start_time(pid) == started


def start_time(pid: int) -> int | None:
    """In ticks since the machine was started; None if there is no such process (or no ``/proc``)."""
    fields = _stat(pid)
    return int(fields[_START_TIME_FIELD]) if fields else None


def _stat(pid: int) -> list[str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def _lines(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Processes without a start time cannot be distinguished from later ones; they are left out."""
    for line in lines:
        pid, _, started = line.partition(" ")
        with contextlib.suppress(ValueError):
            yield int(pid), int(started)


_PROGRAM: Final = "import sys; from pykraft.testing.processes.keeper import keep; keep(sys.stdin)"
