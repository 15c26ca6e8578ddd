"""One node as a process, for tests: it ends with the process that has started it, however that ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path

from pykraft.node.errors import StartError
from pykraft.node.supervisor import interpreter_command

_STOP_TIMEOUT_S = 30.0
_TAIL_BYTES = 2_000


class NodeInProcess:
    """As :class:`~pykraft.testing.node_thread.NodeThread`. ``directory`` gets its properties and its log."""

    def __init__(self, node_id: int, properties: str, directory: Path) -> None:
        self.node_id = node_id
        self._file = directory / f"node-{node_id}.properties"
        self._file.write_text(properties, encoding="utf-8")
        self.output_file = directory / f"node-{node_id}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.paused = False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.running else None

    def begin(self) -> Future[None]:
        assert not self.running, f"node {self.node_id} runs already"
        channel, childs = socket.socketpair()
        arguments = ("server", "start", str(self._file), "--supervisor-fd", str(childs.fileno()))
        with childs, self.output_file.open("ab") as output:
            self._process = subprocess.Popen(
                [*interpreter_command(), "-m", "pykraft.node", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(childs.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the tests
            )
        self._channel = channel
        started: Future[None] = Future()
        threading.Thread(target=self._await_start, args=(channel, started), daemon=True).start()
        return started

    def _await_start(self, channel: socket.socket, started: Future[None]) -> None:
        try:
            serves = bool(channel.recv(1))
        except OSError:
            serves = False
        if serves:
            started.set_result(None)
        else:
            started.set_exception(StartError(f"node {self.node_id} does not start: {self.output_tail()}"))

    def output_tail(self) -> str:
        with self.output_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()

    def stop(self) -> bool:
        """SIGTERM. Whether it has stopped in order; one that does not in time is killed."""
        process = self._process
        self._signal(signal.SIGCONT, signal.SIGTERM)
        self._wait(_STOP_TIMEOUT_S)
        return process is None or process.returncode == 0

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait(None)

    def pause(self) -> None:
        self.paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.paused = False
        self._signal(signal.SIGCONT)

    def _signal(self, *numbers: signal.Signals) -> None:
        if self._process is not None:
            for number in numbers:
                self._process.send_signal(number)  # nothing is sent to one that has ended

    def _wait(self, timeout_s: float | None) -> None:
        process, self._process = self._process, None
        self.paused = False
        if process is not None:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
