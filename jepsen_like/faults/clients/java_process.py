"""The JVM of the Java clients: commands go in, answers come out, each awaited by its number."""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final
from urllib.parse import quote, unquote_plus

from pykraft.testing.processes.kafka_jars import NoKafkaError, java

SOURCE: Final = Path(__file__).with_name("JavaClients.java")
OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
NONE: Final = "!"
_START_TIMEOUT_S: Final = 120.0
_END_TIMEOUT_S: Final = 10.0
_ENDED: Final = "the JVM of the Java clients has ended"

Answer = list[str]
"""The status, and the fields behind it."""


class JavaEndedError(RuntimeError):
    """The JVM has ended before its time; the run says nothing."""


class JavaProcess:
    """Runs ``JavaClients.java`` with the client in ``jars``; it ends when this process does.

    :class:`.kafka_jars.NoKafkaError` if it does not start. All questions are asked on one
    event loop.
    """

    def __init__(self, bootstrap_servers: str, jars: Path) -> None:
        command = java(jars, *OPTIONS, str(SOURCE), bootstrap_servers)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
            start_new_session=True,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self._awaited: dict[int, asyncio.Future[Answer]] = {}
        self._has_ended = False
        self._commands: SimpleQueue[str | None] = SimpleQueue()
        if not self._is_ready():
            with self._process:  # closes its pipes, and waits
                pass
            raise NoKafkaError(
                f"the Java clients do not start: {' '.join(command)} ended with status"
                f" {self._process.returncode} (a JDK is needed, 17 or newer)"
            )
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _is_ready(self) -> bool:
        assert self._process.stdout is not None
        late = threading.Timer(_START_TIMEOUT_S, self._process.kill)
        late.start()
        try:
            return self._process.stdout.readline() == "ready\n"
        finally:
            late.cancel()

    def tell(self, what: str, client: int, *fields: object) -> None:
        """A command without an answer."""
        self._put(what, client, fields)

    def ask(self, what: str, client: int, *fields: object) -> asyncio.Future[Answer]:
        """The answer to a command; the future raises :class:`JavaEndedError` if there will be none."""
        self._loop = self._loop or asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self._has_ended:
            answer.set_exception(JavaEndedError(_ENDED))
        else:
            self._awaited[self._put(what, client, fields)] = answer
        return answer

    def close(self) -> None:
        """End the JVM; every client has been closed. Blocks."""
        self._commands.put(None)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()

    def _put(self, what: str, client: int, fields: Sequence[object]) -> int:
        self._number += 1
        self._commands.put(" ".join(map(str, (self._number, what, client, *fields))) + "\n")
        return self._number

    def _write(self) -> None:
        """A thread: a JVM that does not read must not stop the event loop."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            while (line := self._commands.get()) is not None:
                pipe.write(line)
                if self._commands.empty():
                    pipe.flush()

    def _read(self) -> None:
        """A thread."""
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._call(partial(self._resolve, line))
        self._call(self._give_up)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(function)

    def _resolve(self, line: str) -> None:
        number, *fields = line.rstrip("\n").split(" ")
        answer = self._awaited.pop(int(number))
        if not answer.done():
            answer.set_result(fields)

    def _give_up(self) -> None:
        self._has_ended = True
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(JavaEndedError(_ENDED))
        self._awaited.clear()


def encoded(text: str | None) -> str:
    """As a field of a command."""
    return NONE if text is None else quote(text, safe="")


def decoded(field: str) -> str | None:
    """A field of an answer."""
    return None if field == NONE else unquote_plus(field)
