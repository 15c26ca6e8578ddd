"""One node as a process, for tests: it ends with the process that has started it, however that ends."""

import socket
import threading
from concurrent.futures import Future
from pathlib import Path

from pykraft.node.errors import StartError
from pykraft.node.supervisor import interpreter_command
from pykraft.testing.processes.node_process import NodeProcess

_STOP_TIMEOUT_S = 30.0
_TAIL_BYTES = 2_000


class NodeInProcess(NodeProcess):
    """As :class:`~pykraft.testing.node_thread.NodeThread`. ``directory`` gets its properties and its log."""

    def __init__(self, node_id: int, properties: str, directory: Path) -> None:
        output_file = directory / f"node-{node_id}.log"
        super().__init__(node_id, (), output_file, stop_timeout_s=_STOP_TIMEOUT_S)
        self._file = directory / f"node-{node_id}.properties"
        self._file.write_text(properties, encoding="utf-8")
        self._channel: socket.socket | None = None

    def begin(self) -> Future[None]:
        channel, childs = socket.socketpair()
        arguments = ("server", "start", str(self._file), "--supervisor-fd", str(childs.fileno()))
        self.command = (*interpreter_command(), "-m", "pykraft.node", *arguments)
        with childs:
            self.start([childs.fileno()])
        self._hang_up()
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

    def output_tail(self, max_bytes: int = _TAIL_BYTES) -> str:
        return super().output_tail(max_bytes).strip()

    def stop(self, timeout_s: float | None = None) -> bool:
        """SIGTERM. Whether it has stopped in order; one that does not in time is killed."""
        ended_with = self.unordered_exit
        is_clean = super().stop(timeout_s) and not ended_with
        self._hang_up()
        return is_clean

    def kill(self) -> None:
        super().kill()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
