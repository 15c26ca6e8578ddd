"""The processes of one session (setsid), found by the session's id: Linux only.

Spark's workers have a process group of their own and outlive their parents, but they stay in the session of
the driver that started them.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def processes_of(session_id: int) -> list[Process]:
    """Those that live; the leader may be gone."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):
                _, _, fields = (directory / "stat").read_text().rpartition(")")
                state, parent, _, session, *_ = fields.split()
                if int(session) == session_id and state != "Z":
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(Process(int(directory.name), int(parent), command))
    return found


def send(number: signal.Signals, processes: Iterable[Process]) -> int:
    """How many there still were."""
    reached = 0
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
            reached += 1
    return reached
