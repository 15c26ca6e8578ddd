"""One process per node: started together, watched, and stopped together.

Every child holds one end of a socket whose other end only this process has. A byte from the child says that
it serves. A child stops when the socket is closed: this process closes it to stop the child, and the system
closes it if this process is killed. Children are in sessions of their own, so that only this process receives
a terminal's Ctrl-C.

A node that fails to start stops the others; one that ends later does not: a cluster is made to continue
without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pykraft.node.stop_signals import handle_stop_signals

EXIT_FAILED: Final = 1

Command = Callable[[int], Sequence[str]]


def supervise(
    commands: Mapping[int, Command],
    environment: Mapping[str, str],
    on_ready: Callable[[Mapping[int, int]], None],
    report: Callable[[str], None],
) -> int:
    """Run one process per node until a signal stops them or none is left; returns the exit code.

    A node's command is made for the file descriptor of its end of the socket. ``on_ready`` is called with the
    process id of every node once all serve, ``report`` with a sentence for each node that ended by itself.
    The code is 0 if every node ended only after it was asked to, and without an error. A second signal kills
    the processes that still run.
    """
    return asyncio.run(_Supervisor(environment, on_ready, report).run(commands))


def interpreter_command() -> list[str]:
    """This interpreter; it searches the working directory for modules only if this process does."""
    return [sys.executable, *([] if {"", os.getcwd()} & set(sys.path) else ["-P"])]


class _Child:
    """One process, and this end of its socket."""

    def __init__(
        self,
        node_id: int,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.node_id = node_id
        self.process = process
        self._reader = reader
        self._writer = writer
        self.serves = False

    async def wait_until_it_serves(self) -> bool:
        """False if it ended, or was asked to stop, before it served."""
        self.serves = bool(await self._reader.read(1))
        return self.serves

    def ask_to_stop(self) -> None:
        self._writer.close()
        self._signal(signal.SIGCONT)  # a paused process would not notice

    def kill(self) -> None:
        self._writer.close()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Process.send_signal polls first, which may take the exit code of a process that has just ended away
        # from asyncio: it would report 255.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def how_it_ended(self) -> str:
        status = self.process.returncode or 0
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"


class _Supervisor:
    def __init__(
        self,
        environment: Mapping[str, str],
        on_ready: Callable[[Mapping[int, int]], None],
        report: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._on_ready = on_ready
        self._report = report
        self._children: list[_Child] = []
        self._all_served = False
        self._is_stopping = False
        self._failed = False

    async def run(self, commands: Mapping[int, Command]) -> int:
        handle_stop_signals(asyncio.get_running_loop(), self._handle_signal)
        try:
            for node_id, command in commands.items():
                self._children.append(await self._start(node_id, command))
            if self._is_stopping:  # while processes were being started
                self._stop()
            await asyncio.gather(*map(self._follow, self._children))
        finally:
            for child in self._children:
                child.kill()
            await asyncio.gather(*(child.process.wait() for child in self._children))
        return EXIT_FAILED if self._failed else 0

    async def _start(self, node_id: int, command: Command) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                start_new_session=True,
            )
        return _Child(node_id, process, *await asyncio.open_connection(sock=ours))

    async def _follow(self, child: _Child) -> None:
        if await child.wait_until_it_serves():
            self._handle_service()
        await child.process.wait()
        self._handle_end(child)

    def _handle_service(self) -> None:
        if all(child.serves for child in self._children):
            self._all_served = True
            self._on_ready({child.node_id: child.process.pid for child in self._children})

    def _handle_end(self, child: _Child) -> None:
        self._failed = self._failed or not self._is_stopping or child.process.returncode != 0
        if self._is_stopping:
            return
        end = f"Node {child.node_id} ended ({child.how_it_ended()})"
        if not self._all_served:
            self._report(f"{end} before all nodes had started: stopping")
            self._stop()
        elif any(other.process.returncode is None for other in self._children):
            self._report(f"{end}; the others continue")
        else:
            self._report(f"{end}; it was the last")

    def _handle_signal(self, name: str) -> None:
        if self._is_stopping:
            self._failed = True
            for child in self._children:
                child.kill()
        else:
            self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        for child in self._children:
            child.ask_to_stop()
