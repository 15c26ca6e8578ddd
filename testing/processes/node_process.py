"""One node as a real process: started, killed, paused, stopped, and never confused with somebody else's.

Each node leads its own process group and writes to files. Only process ids that this object started are
ever signalled, and a paused process is always continued before anything is asked of it. Decides whether an
exit was ordered; never decides when to break things (that is the nemesis).
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 20.0
TAIL_BYTES = 8192


class NodeProcess:
    """A node that ``command`` starts in a process of its own. Methods may be called from several threads.

    ``command`` and ``environment`` (added to the runner's) may be changed while it does not run. ``started``
    is told the id of every process. ``stop_status``: with what it ends after SIGTERM if all is well, within
    ``stop_timeout_s``.
    """

    def __init__(
        self,
        node_id: int,
        command: Sequence[str],
        output_file: Path,
        environment: Mapping[str, str] | None = None,
        started: Callable[[int], None] = lambda _: None,
        stop_status: int = 0,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self.node_id = node_id
        self.command = tuple(command)
        self.environment = dict(environment or {})
        self.output_file = output_file
        self._started = started
        self._stop_status = stop_status
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._ordered_exit = True
        self._unclean_ends = 0
        self._asked: subprocess.Popen[bytes] | None = None
        """The last process that was sent SIGTERM."""
        self.paused = False

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        with self._lock:
            return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The id of the process, if it exists."""
        with self._lock:
            return self._process.pid if self._process is not None and self.running else None

    def send_signal(self, number: signal.Signals) -> None:
        """To the process that runs, and only to that one; one that it ends has not ended as ordered."""
        with self._lock:
            self._signal(number)

    def cpu_s(self) -> float:
        """Processor time of the process that runs: of all threads, ended ones too."""
        pid = self.pid
        assert pid is not None
        return time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid names

    def rss_bytes(self) -> int:
        """Its resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def serving(self) -> bool:
        """Whether the process exists and is not paused. It may still be starting."""
        return self.running and not self.paused

    @property
    def unordered_exit(self) -> int | None:
        """The exit status of a process that nobody told to end; None while all is as ordered."""
        with self._lock:
            if self._process is None or self._ordered_exit:
                return None
            return self._process.poll()

    @property
    def unclean_ends(self) -> int:
        """How many of its processes have ended otherwise than asked, without flushing what they had."""
        with self._lock:
            return self._unclean_ends + self._has_ended_unclean()

    def _has_ended_unclean(self) -> bool:
        return self._process is not None and self._process.poll() not in (None, self._stop_status)

    def start(self, pass_fds: Collection[int] = ()) -> None:
        """Start the node; its output is appended to the file of its earlier lives."""
        with self._lock:
            assert not self.running, f"node {self.node_id} is already running"
            self._unclean_ends += self._has_ended_unclean()
            with self.output_file.open("ab") as output:
                self._process = subprocess.Popen(
                    self.command,
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
            self._started(self._process.pid)
            self._ordered_exit = False
            self.paused = False

    def ensure_running(self) -> None:
        """Start the node unless it runs."""
        with self._lock:
            if not self.running:
                self.start()

    def forgive_exit(self) -> None:
        """The exit that :attr:`unordered_exit` shows has been dealt with."""
        with self._lock:
            self._ordered_exit = self._ordered_exit or not self.running

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        with self._lock:
            if self._signal(signal.SIGKILL, ends=True) and self._process is not None:
                self._process.wait()
            self.paused = False

    @contextmanager
    def killed(self) -> Iterator[None]:
        """SIGKILL, and nobody starts it before the context is left."""
        with self._lock:
            self.kill()
            yield

    def pause(self) -> None:
        """SIGSTOP: the process keeps its sockets and its state, and does nothing."""
        with self._lock:
            if self._signal(signal.SIGSTOP):
                self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        with self._lock:
            self._signal(signal.SIGCONT)
            self.paused = False

    def stop(self, timeout_s: float | None = None) -> bool:
        """SIGTERM and wait. False if that was not an ordered end: killed, or not with ``stop_status``."""
        with self._lock:
            self.resume()
            # A second SIGTERM would end it at once: somebody else may be waiting for its end already.
            is_asked = self._asked is not None and self._asked is self._process and self.running
            if not is_asked and not self._signal(signal.SIGTERM, ends=True):
                return True
            process = self._asked = self._process
        assert process is not None
        try:
            clean = process.wait(timeout_s or self._stop_timeout_s) == self._stop_status
        except subprocess.TimeoutExpired:
            self.kill()
            clean = False
        with self._lock:
            if self._process is process:  # somebody may have started the next one
                self._ordered_exit = clean
        return clean

    def output_tail(self, max_bytes: int = TAIL_BYTES) -> str:
        """The end of what the node has printed in all its lives."""
        try:
            with self.output_file.open("rb") as output:
                output.seek(0, os.SEEK_END)
                output.seek(max(0, output.tell() - max_bytes))
                return output.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _signal(self, number: signal.Signals, *, ends: bool = False) -> bool:
        """Signal the node's process group; False if the node is not running.

        Only this object reaps the child, and only under the lock or after a termination signal, so the id
        that is signalled still belongs to it.
        """
        if self._process is None or self._process.poll() is not None:
            return False
        if ends:
            self._ordered_exit = True
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True
