"""The preloaded shim of one node: faults of its disk and its wall clock, and other ports for its connections.

``shim.c`` and its parts are a shared library that is compiled at run time and loaded into a node's process by
``LD_PRELOAD``. It does what a control file says, which :class:`Shim` writes through shared memory: a change
takes effect with the node's next call, and stays across its restarts. Decides what the file says; when
something is broken is the nemesis's business.
"""

import array
import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Final

_SOURCES: Final = ("shim.c", "shim_disk.c", "shim_fate.c", "shim_clock.c")
_COMPILER: Final = "cc"
_COMPILE_TIMEOUT_S: Final = 120.0
_VARIABLE: Final = "PYKRAFT_SHIM"
_SEPARATORS: Final = (" ", "\t", "\n", ":")
"""Between the libraries in ``LD_PRELOAD``; none of them can be escaped."""

# The layout of the control file: shim.h, which also refuses a file of another size. All numbers are words of
# 64 bits, because one such word is written at once.
_WORD_BYTES: Final = 8
_MAGIC: Final = 0x324D4948534B5950
_MAGIC_WORD, _STATE_WORD, _LOADED_WORD, _HITS_WORD, _DRAWS_WORD, _PORTS_WORD = range(6)
MOST_PORTS: Final = 256
MOST_PREFIX_BYTES: Final = 1016
_SLOT_NUMBERS: Final = 11
_SLOT_WORDS: Final = _SLOT_NUMBERS + 128
_SLOTS_WORD: Final = _PORTS_WORD + MOST_PORTS
_FILE_BYTES: Final = _WORD_BYTES * (_SLOTS_WORD + 2 * _SLOT_WORDS)
_MILLION: Final = 1_000_000

_WRITE_ERRORS: Final = (0, errno.EIO, errno.ENOSPC, errno.EROFS)
_OTHER_ERRORS: Final = (0, errno.EIO)


class _Broken(IntFlag):
    CLOCK = 1
    WRITES = 2
    FSYNCS = 4
    READS = 8
    PORTS = 16


class ShimError(RuntimeError):
    """The shim cannot be compiled or loaded; the message says why."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """Faults of calls on files at and below the directory ``prefix``. Sockets and pipes never suffer.

    ``probability`` in [0, 1] is that of each call. A call that is hit first takes ``..._delay_ms`` longer;
    then it fails with the number of an error, 0 being none. Writes fail with EIO, ENOSPC or EROFS, and with
    them whatever else a disk in that state refuses: without room files can be removed and truncated but not
    created; read-only files cannot be opened for writing. With ``short_writes`` a write may write a part
    only; together with an error half of the writes that are hit fail and the others are short.

    A flush that fails has not flushed, and the next one may succeed, as with the kernel, which then considers
    as clean what it could not write. Unlike there nothing is lost: no power is cut.

    Writes through mapped memory, by the kernel itself (io_uring) or of C's streams are not hit.
    """

    prefix: Path
    write_errno: int = 0
    fsync_errno: int = 0
    read_errno: int = 0
    short_writes: bool = False
    probability: float = 1.0
    write_delay_ms: float = 0.0
    fsync_delay_ms: float = 0.0
    read_delay_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.write_errno not in _WRITE_ERRORS:
            raise ValueError(f"writes fail with EIO, ENOSPC or EROFS, not with {self.write_errno}")
        if self.fsync_errno not in _OTHER_ERRORS or self.read_errno not in _OTHER_ERRORS:
            raise ValueError(
                f"flushes and reads fail with EIO, not with {self.fsync_errno}, {self.read_errno}"
            )
        if not 0 <= self.probability <= 1:
            raise ValueError(f"a probability of {self.probability}")
        if min(self.write_delay_ms, self.fsync_delay_ms, self.read_delay_ms) < 0:
            raise ValueError("a negative delay")


@dataclass(frozen=True, slots=True)
class _ClockState:
    """The wall clock shows ``offset_ns`` more than the true one at ``base_ns``, and from then on runs at
    ``rate_ppm`` (a million: as fast as the true one)."""

    base_ns: int
    offset_ns: int
    rate_ppm: int


class Shim:
    """``library`` is what :func:`build_shim` made; ``control_file`` is made here. Methods may be called from
    several threads, before the node is started and while it runs."""

    def __init__(self, library: Path, control_file: Path) -> None:
        self._library = library
        self._control_file = control_file.absolute()
        self._control_file.unlink(missing_ok=True)  # whoever has mapped an older one keeps that
        with self._control_file.open("x+b") as file:
            file.truncate(_FILE_BYTES)
            memory = memoryview(mmap.mmap(file.fileno(), _FILE_BYTES))
        self._bytes, self._words = memory, memory.cast("q")
        self._lock = threading.Lock()
        self._disk: DiskState | None = None
        self._clock: _ClockState | None = None
        self._redirects = False
        self._words[_MAGIC_WORD] = _MAGIC

    def environment(self) -> dict[str, str]:
        """Return the environment that the node's process needs."""
        before = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self._library} {before}".strip(),
            _VARIABLE: str(self._control_file),
        }

    @property
    def loaded(self) -> int:
        """How many processes have loaded it."""
        return self._words[_LOADED_WORD]

    @property
    def hits(self) -> int:
        """How many calls on files have failed, been delayed or written a part only."""
        return self._words[_HITS_WORD]

    def redirect(self, ports: Mapping[int, int]) -> None:
        """A connection over loopback to a port of ``ports`` is opened to the port that stands there instead;
        to others as ever. Replaces what was set before. :class:`ValueError` for too many or impossible ports.
        """
        if len(ports) > MOST_PORTS:
            raise ValueError(f"{len(ports)} ports; at most {MOST_PORTS} can be redirected")
        for port in (*ports, *ports.values()):
            if not 0 < port < 1 << 16:
                raise ValueError(f"there is no port {port}")
        table = [source << 16 | target for source, target in ports.items()]
        with self._lock:
            self._write(_PORTS_WORD, [*table, *[0] * (MOST_PORTS - len(table))])
            self._redirects = bool(table)
            self._publish()

    def set_clock(self, offset_s: float, rate: float = 1.0) -> None:
        """From now on the node's wall clock is ahead of the true one by ``offset_s`` (behind it, if negative)
        and advances by ``rate`` seconds a second. Its monotonic clock, its sleeps and its timeouts stay true.
        """
        rate_ppm = round(rate * _MILLION)
        if rate_ppm <= 0:
            raise ValueError(f"a clock cannot run at a rate of {rate}")
        with self._lock:
            self._clock = _ClockState(time.time_ns(), round(offset_s * 1e9), rate_ppm)
            self._publish()

    def heal_clock(self) -> None:
        """The wall clock is the true one again: it jumps there."""
        with self._lock:
            self._clock = None
            self._publish()

    def set_disk(self, state: DiskState) -> None:
        """Replaces what was set before. :class:`ValueError` if the path of the prefix is too long."""
        if len(_prefix_bytes(state)) > MOST_PREFIX_BYTES:
            raise ValueError(f"a path of more than {MOST_PREFIX_BYTES} bytes: {state.prefix}")
        with self._lock:
            self._disk = state
            self._publish()

    def heal_disk(self) -> None:
        with self._lock:
            self._disk = None
            self._publish()

    def _publish(self) -> None:
        """Fill the slot that nobody reads, then name it in one word together with what is broken."""
        version = (self._words[_STATE_WORD] >> 8) + 1
        clock = self._clock or _ClockState(0, 0, _MILLION)
        disk = self._disk or DiskState(Path())
        numbers = [
            *(clock.base_ns, clock.offset_ns, clock.rate_ppm),
            *(disk.write_errno, disk.fsync_errno, disk.read_errno, int(disk.short_writes)),
            round(disk.probability * _MILLION),
            *(round(ms * 1e6) for ms in (disk.write_delay_ms, disk.fsync_delay_ms, disk.read_delay_ms)),
        ]
        slot_word = _SLOTS_WORD + (version & 1) * _SLOT_WORDS
        self._write(slot_word, numbers)
        prefix = _prefix_bytes(disk) + b"\0"
        prefix_at = (slot_word + _SLOT_NUMBERS) * _WORD_BYTES
        self._bytes[prefix_at : prefix_at + len(prefix)] = prefix
        self._words[_STATE_WORD] = version << 8 | self._broken()

    def _broken(self) -> _Broken:
        broken = _Broken.PORTS if self._redirects else _Broken(0)
        if self._clock is not None:
            broken |= _Broken.CLOCK
        if disk := self._disk:
            if disk.write_errno or disk.short_writes or disk.write_delay_ms:
                broken |= _Broken.WRITES
            if disk.fsync_errno or disk.fsync_delay_ms:
                broken |= _Broken.FSYNCS
            if disk.read_errno or disk.read_delay_ms:
                broken |= _Broken.READS
        return broken

    def _write(self, word: int, numbers: Sequence[int]) -> None:
        self._words[word : word + len(numbers)] = memoryview(array.array("q", numbers))


def why_unavailable() -> str | None:
    """Return the reason why the shim cannot work here, if one is known."""
    if not sys.platform.startswith("linux"):
        return "not Linux"
    if struct.calcsize("P") != _WORD_BYTES:
        return "not a system of 64 bits"
    if shutil.which(_COMPILER) is None:
        return f"no C compiler ({_COMPILER})"
    return None


def build_shim(directory: Path) -> Path:
    """Compile to ``shim.so``. :class:`ShimError` if that fails, or the path cannot be preloaded."""
    library = directory.absolute() / "shim.so"
    if any(separator in str(library) for separator in _SEPARATORS):
        raise ShimError(f"LD_PRELOAD cannot hold a path with a space or a colon: {library}")
    sources = [str(Path(__file__).parent / name) for name in _SOURCES]
    command = [_COMPILER, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"]
    try:
        result = subprocess.run(
            [*command, "-o", str(library), *sources, "-ldl"],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise ShimError(f"the shim cannot be compiled: {error}") from error
    if result.returncode != 0:
        raise ShimError(f"the shim cannot be compiled: {result.stderr.strip()}")
    return library


def _prefix_bytes(state: DiskState) -> bytes:
    """As the kernel names it: without symbolic links. That of ``/`` is empty, and every path is below it."""
    return os.fsencode(os.path.realpath(state.prefix)).rstrip(b"/")
