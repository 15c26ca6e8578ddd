"""The driver as processes: started, killed in whole or in part, and never left behind.

A driver is a Python that controls a Java virtual machine, which starts daemons in Python, of which workers
are forked. Drivers that are not killed as a whole go on for a while beside the next one.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from pykraft.jepsen_like.faults.spark_rounds.session_processes import Process, processes_of, send
from pykraft.testing.processes.waits import wait_until

_DAEMON: Final = "pyspark.daemon"
_GONE_TIMEOUT_S: Final = 30.0


class DriverProcess:
    """One at a time is current. ``arguments``: of :mod:`.driver`. Leaving the block ends all of them."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._command = [sys.executable, "-m", "pykraft.jepsen_like.faults.spark_rounds.driver", *arguments]
        self._output = output
        self._current: subprocess.Popen[bytes] | None = None
        self._earlier: list[subprocess.Popen[bytes]] = []
        self.session_ids: list[int] = []
        """The sessions of all that were started."""

    @property
    def is_running(self) -> bool:
        return self._current is not None and self._current.poll() is None

    def start(self) -> None:
        """In a session of its own, out of reach of Ctrl-C; an earlier driver may go on."""
        if self._current is not None:
            self._earlier.append(self._current)
        with self._output.open("ab") as output:
            self._current = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.session_ids.append(self._current.pid)

    def kill(self) -> None:
        """All of it."""
        if self._current is not None:
            _end(self._current)

    def kill_python(self) -> None:
        """Its virtual machine and workers go on until they notice."""
        if self._current is not None:
            self._current.kill()
            self._current.wait()

    def kill_workers(self, rng: random.Random) -> bool:
        """All processes that run tasks, or look something up, or one of them: the others get no more rows, or
        nobody takes theirs. Whether there were any."""
        workers = self._workers()
        if workers and rng.random() < 0.7:
            workers = [rng.choice(workers)]
        return send(signal.SIGKILL, workers) > 0

    def stall(self) -> Callable[[], int]:
        """Stop the whole driver; the returned function ends that, and says how many processes go on."""
        stalled = self._processes()
        send(signal.SIGSTOP, stalled)
        return lambda: send(signal.SIGCONT, stalled)

    def end_earlier(self) -> None:
        """End what is left of earlier drivers."""
        while self._earlier:
            _end(self._earlier.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_earlier()
        self.kill()

    def _processes(self) -> list[Process]:
        return [] if self._current is None else processes_of(self._current.pid)

    def _workers(self) -> list[Process]:
        """They have the command of the daemon that they were forked from."""
        forks = [process for process in self._processes() if _DAEMON in process.command]
        known = {process.pid for process in forks}
        return [process for process in forks if process.parent in known]


def _end(leader: subprocess.Popen[bytes]) -> None:
    """Repeated, since a process may be forked meanwhile."""

    def is_gone() -> bool:
        send(signal.SIGKILL, left := processes_of(leader.pid))
        leader.poll()
        return not left

    wait_until("all processes of a driver are gone", is_gone, _GONE_TIMEOUT_S)
    leader.wait()
