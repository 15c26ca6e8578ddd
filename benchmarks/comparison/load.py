"""The load of the rows that count requests: ``load.c``, whose processor time is well below that of a broker.

It is built once for each of its versions, with the C compiler of the machine.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from comparison.frames import fetch_frame
from comparison.requests import check_fetched

_SOURCE: Final = Path(__file__).with_name("load.c")
_BUILT: Final = Path(__file__).resolve().parents[2] / "build" / "benchmarks"

_MARK: Final = 0x0123456789ABCDEF

Check = Callable[[bytes], None]
"""Takes an answer without its size, and raises if it is not what was asked for."""


class Counting(NamedTuple):
    """The eight bytes ``at`` this place of a frame count from ``first`` on by ``step``."""

    at: int
    first: int
    step: int


@dataclass(frozen=True)
class Loaded:
    """``latencies_s``: from the first byte that was sent of a request to the last of its answer."""

    received_bytes: int
    cpu_s: float
    """Of the program that sent the requests."""
    latencies_s: Sequence[float]


class Load:
    """Open connections, each of which sends its frame again and again."""

    def __init__(
        self, process: subprocess.Popen[str], directory: Path, check: Check, connections: int
    ) -> None:
        self._process = process
        self._directory = directory
        self._check: Check | None = check
        self._connections = connections

    def run(self, count: int) -> Loaded:
        """Send so many requests, each connection its share. The first answer of each is checked."""
        assert count >= self._connections
        received_bytes, cpu_s = self._ask(f"{count}\n").split()
        if self._check is not None:
            for answer in _split((self._directory / "answers").read_bytes()):
                self._check(answer)
            self._check = None
        latencies_s = array("d", (self._directory / "latencies").read_bytes())
        assert len(latencies_s) == count
        return Loaded(int(received_bytes), float(cpu_s), latencies_s)

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        """The next line; RuntimeError with what it complains of once it has ended."""
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._process.stderr.read().strip())
        return line


@contextlib.contextmanager
def load(
    port: int,
    frames: Sequence[bytes],
    check: Check,
    *,
    connections: int | None = None,
    depth: int = 1,
    counting: Counting | None = None,
) -> Iterator[Load]:
    """Connect: one connection for each frame, or so many, which take the frames in turn; ``depth``: how many
    requests of each are unanswered."""
    number = len(frames) if connections is None else connections
    directory = Path(tempfile.mkdtemp(prefix="load-"))
    (directory / "frames").write_bytes(b"".join(frames))
    command = [built(), port, number, depth, directory, *(counting or ())]
    process = subprocess.Popen(
        [*map(str, command)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with process:
            opened = Load(process, directory, check, number)
            opened.answer()
            yield opened
    finally:
        shutil.rmtree(directory)


def load_fetches(
    port: int, topic: str, partitions: Sequence[int], batch_bytes: int, records: int
) -> contextlib.AbstractContextManager[Load]:
    """Fetches of batch after batch, one connection for each partition, two fetches of each unanswered.

    Offset 0 holds the record that probed whether the topic was ready.
    """
    frames = [fetch_frame(topic, index, _MARK, batch_bytes) for index in partitions]
    at = frames[0].index(_MARK.to_bytes(8, "big"))
    return load(port, frames, check_fetched, depth=2, counting=Counting(at, 1, records))


def built() -> Path:
    """The program; SystemExit where there is no C compiler."""
    program = _BUILT / f"load-{zlib.crc32(_SOURCE.read_bytes()):08x}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise SystemExit(f"{_SOURCE.name} cannot be built: there is no C compiler (cc, gcc or clang)")
        _BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-o", str(program), str(_SOURCE)], check=True)
    return program


def _split(answers: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(answers):
        (size,) = struct.unpack_from(">i", answers, at)
        yield answers[at + 4 : at + 4 + size]
        at += 4 + size
