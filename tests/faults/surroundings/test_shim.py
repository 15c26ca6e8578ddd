"""The preloaded shim: a process makes real calls, and suffers what its control file says and nothing else."""

import ast
import errno
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import pytest

from pykraft.jepsen_like.faults.surroundings.shim import (
    MOST_PORTS,
    DiskState,
    Shim,
    ShimError,
    build_shim,
    why_unavailable,
)

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no shim: {why_unavailable()}")

_PROGRAM: Final = """
import ctypes, mmap, os, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    try:
        try:
            code = compile(line, "question", "eval")
        except SyntaxError:
            code = compile(line, "statement", "exec")
        answer = repr(eval(code))
    except OSError as error:
        answer = f"errno {error.errno}"
    print(answer, flush=True)
"""
FAR_S: Final = 100_000.0
"""A clock that is off by this much cannot be confused with a true one, however slow the machine is."""


class Child:
    """A process that evaluates expressions and executes statements, line by line."""

    def __init__(self, shim: Shim, command: Sequence[str] = (sys.executable, "-c", _PROGRAM)) -> None:
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **shim.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> Any:
        """The answer. :class:`OSError` if a call failed."""
        answer = self.answer(question)
        if answer.startswith("errno "):
            raise OSError(int(answer.removeprefix("errno ")), question)
        return ast.literal_eval(answer)

    def answer(self, question: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def error_of(self, question: str) -> int:
        """The number of the error with which it fails; 0 if it does not."""
        try:
            self.ask(question)
        except OSError as error:
            return error.errno or -1
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("library"))


@pytest.fixture
def shim(library: Path, tmp_path: Path) -> Shim:
    return Shim(library, tmp_path / "control")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of which the disk can be broken, with a file and a directory in it."""
    path = tmp_path / "data"
    (path / "directory").mkdir(parents=True)
    (path / "file").write_bytes(b"0123456789" * 1000)
    return path


@pytest.fixture
def child(shim: Shim, data: Path) -> Iterator[Child]:
    """``file`` is a descriptor of the file, ``path`` the directory."""
    with Child(shim) as child:
        child.ask(f"path = {str(data)!r}")
        child.ask("file = os.open(path + '/file', os.O_RDWR)")
        yield child


# --- disks -------------------------------------------------------------------------------------------------

WRITES: Final = (
    "os.write(file, b'abc')",
    "os.writev(file, [b'abc', b'def'])",
    "os.pwrite(file, b'abc', 0)",
    "os.pwritev(file, [b'abc', b'def'], 0)",
    "os.posix_fallocate(file, 0, 20_000)",
    "os.open(path + '/new', os.O_CREAT | os.O_WRONLY)",
    "os.mkdir(path + '/new directory')",
    "open(path + '/new', 'x').close()",
)
CHANGES: Final = (
    "os.ftruncate(file, 9_000)",
    "os.truncate(path + '/file', 8_000)",
    "os.close(os.open(path + '/file', os.O_RDWR | os.O_TRUNC))",
    "os.replace(path + '/file', path + '/renamed')",
    "os.replace(path + '/renamed', path + '/file')",
    "os.rmdir(path + '/directory')",
    "os.remove(path + '/file')",
)
OPENINGS: Final = (
    "os.close(os.open(path + '/file', os.O_WRONLY | os.O_CREAT))",
    "open(path + '/file', 'r+').close()",
)
READS: Final = (
    "len(os.read(file, 100))",
    "len(os.pread(file, 100, 0))",
    "os.readv(file, [bytearray(100)])",
    "os.preadv(file, [bytearray(100)], 0)",
    "os.sendfile(pair[0].fileno(), file, 0, 100)",
    "len(open(path + '/file', 'rb').read())",
)
FLUSHES: Final = (
    "os.fsync(file)",
    "os.fdatasync(file)",
    "libc.sync_file_range(file, 0, 0, 0) and 1 / 0",
    "os.fsync(os.open(path, os.O_RDONLY | os.O_DIRECTORY))",
    "mapped.flush()",
)


def errors_of(child: Child, calls: Sequence[str]) -> set[int]:
    return {child.error_of(call) for call in calls}


def test_without_a_fault_every_call_works(shim: Shim, child: Child) -> None:
    assert shim.loaded == 1
    child.ask("pair = socket.socketpair()")
    child.ask("mapped = mmap.mmap(file, 0)")
    for calls in (OPENINGS, READS, FLUSHES, CHANGES):
        assert errors_of(child, calls) == {0}
    child.ask("os.remove(path + '/new') if os.path.exists(path + '/new') else None")
    assert errors_of(child, WRITES[:-1]) == {0}
    assert shim.hits == 0


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_writes_fail_and_work_again(shim: Shim, child: Child, data: Path, error: int) -> None:
    before = (data / "file").read_bytes()
    shim.set_disk(DiskState(data, write_errno=error))
    assert errors_of(child, WRITES) == {error}
    assert shim.hits == len(WRITES)
    assert (data / "file").read_bytes() == before and not (data / "new").exists()
    assert child.error_of("os.mkdir(path + '/directory')") == errno.EEXIST
    assert errors_of(child, READS[:-2]) == {0}
    shim.heal_disk()
    assert errors_of(child, WRITES[:-1]) == {0}


def test_full_disk_lets_files_shrink_and_go(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.ENOSPC))
    assert errors_of(child, (*OPENINGS, *CHANGES)) == {0}
    assert not (data / "file").exists()


def test_failing_disk_lets_files_be_opened_but_not_changed(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.EIO))
    assert errors_of(child, OPENINGS) == {0}
    assert errors_of(child, CHANGES) == {errno.EIO}


def test_read_only_disk_lets_files_only_be_read(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.EROFS))
    assert errors_of(child, (*OPENINGS, *CHANGES)) == {errno.EROFS}
    child.ask("pair = socket.socketpair()")
    assert errors_of(child, READS) == {0}


def test_flushes_fail_and_work_again(shim: Shim, child: Child, data: Path) -> None:
    child.ask("mapped = mmap.mmap(file, 0)")
    shim.set_disk(DiskState(data, fsync_errno=errno.EIO))
    assert errors_of(child, FLUSHES[:2]) == {errno.EIO}
    assert child.ask("[libc.sync_file_range(file, 0, 0, 0), ctypes.get_errno()]") == [-1, errno.EIO]
    assert errors_of(child, FLUSHES[3:]) == {errno.EIO}
    assert child.ask("os.write(file, b'abc')") == 3
    shim.heal_disk()
    assert errors_of(child, FLUSHES) == {0}


def test_reads_fail_and_work_again(shim: Shim, child: Child, data: Path) -> None:
    child.ask("pair = socket.socketpair()")
    shim.set_disk(DiskState(data, read_errno=errno.EIO))
    assert errors_of(child, READS) == {errno.EIO}
    assert child.ask("os.write(file, b'abc')") == 3
    shim.heal_disk()
    assert errors_of(child, READS) == {0}


@pytest.mark.parametrize(
    "write", ["os.write(new, bytes(1000))", "os.writev(new, [b'', bytes(500), bytes(500)])"]
)
def test_short_write_writes_what_it_says(shim: Shim, child: Child, data: Path, write: str) -> None:
    child.ask("new = os.open(path + '/new', os.O_CREAT | os.O_WRONLY | os.O_APPEND)")
    shim.set_disk(DiskState(data, short_writes=True))
    written = [child.ask(write) for _ in range(20)]
    assert all(0 < count < 1000 for count in written)
    assert (data / "new").stat().st_size == sum(written)
    assert child.ask("os.write(new, b'x')") == 1
    shim.heal_disk()
    assert child.ask(write) == 1000


def test_disk_that_becomes_full_takes_a_part_first(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.ENOSPC, short_writes=True))
    errors = [child.error_of("os.write(file, bytes(1000))") for _ in range(50)]
    assert set(errors) == {0, errno.ENOSPC}
    assert child.error_of("os.mkdir(path + '/new')") == errno.ENOSPC


def test_each_call_has_its_probability(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, fsync_errno=errno.EIO, probability=0.5))
    errors = [child.error_of("os.fsync(file)") for _ in range(100)]
    assert 20 < errors.count(errno.EIO) < 80
    assert shim.hits == errors.count(errno.EIO)
    shim.set_disk(DiskState(data, fsync_errno=errno.EIO, probability=0.0))
    assert errors_of(child, ["os.fsync(file)"] * 20) == {0}


@pytest.mark.parametrize(
    ("state", "call"),
    [
        ({"write_delay_ms": 50}, "os.write(file, b'abc')"),
        ({"fsync_delay_ms": 50}, "os.fsync(file)"),
        ({"read_delay_ms": 50}, "os.pread(file, 10, 0)"),
        ({"fsync_delay_ms": 50, "fsync_errno": errno.EIO}, "libc.fsync(file)"),
    ],
)
def test_slow_call_takes_longer(
    shim: Shim, child: Child, data: Path, state: dict[str, Any], call: str
) -> None:
    shim.set_disk(DiskState(data, **state))
    timed = f"(start := time.monotonic(), {call}, time.monotonic() - start)"
    assert child.ask(timed)[2] >= 0.05
    assert shim.hits == 1


def test_delay_outlasts_signals(shim: Shim, child: Child, data: Path) -> None:
    child.ask("import signal; signal.signal(signal.SIGUSR1, lambda *_: None)")
    pid = child.ask("os.getpid()")
    shim.set_disk(DiskState(data, fsync_delay_ms=300))
    timed = "(start := time.monotonic(), os.fsync(file), time.monotonic() - start)[2]"
    with ThreadPoolExecutor(1) as pool:
        took_s = pool.submit(child.ask, timed)
        while not took_s.done():
            os.kill(pid, signal.SIGUSR1)
            wait([took_s], 0.02)
    assert took_s.result() >= 0.3


def test_only_files_below_the_directory_suffer(shim: Shim, child: Child, data: Path, tmp_path: Path) -> None:
    (tmp_path / "data.log").touch()
    (tmp_path / "link").symlink_to(data)
    child.ask(f"os.chdir({str(tmp_path)!r})")
    child.ask("directory = os.open('data', os.O_RDONLY)")
    shim.set_disk(DiskState(tmp_path / "link", write_errno=errno.EIO, fsync_errno=errno.EIO))
    new = "os.O_CREAT | os.O_WRONLY"
    inside = (
        f"os.open('data/new', {new})",
        f"os.open('link/new', {new})",
        f"os.open('data/../data//new', {new})",
        f"os.open('new', {new}, dir_fd=directory)",
        "os.mkdir('data/new/')",
        "os.replace('data.log', 'data/renamed')",
    )
    assert errors_of(child, inside) == {errno.EIO}
    outside = (
        f"os.open('new', {new})",
        f"other = os.open('data.log', {new})",
        "os.write(other, b'abc')",
        "os.fsync(other)",
        f"os.open('../new', {new}, dir_fd=directory)",
        "os.write(os.dup(other), b'abc')",
    )
    assert errors_of(child, outside) == {0}
    assert child.error_of("os.write(os.dup(file), b'abc')") == errno.EIO


def test_every_path_is_below_the_root(shim: Shim, child: Child, tmp_path: Path) -> None:
    shim.set_disk(DiskState(Path("/"), fsync_errno=errno.EIO))
    assert child.error_of("os.fsync(file)") == errno.EIO


def test_file_that_was_removed_suffers_too(shim: Shim, child: Child, data: Path) -> None:
    (data / "file").unlink()
    shim.set_disk(DiskState(data, write_errno=errno.EIO))
    assert child.error_of("os.write(file, b'abc')") == errno.EIO


def test_sockets_and_pipes_never_suffer(shim: Shim, child: Child) -> None:
    child.ask("pair = socket.socketpair()")
    child.ask("pipe = os.pipe()")
    broken = {"write_errno": errno.EIO, "read_errno": errno.EIO, "write_delay_ms": 1, "read_delay_ms": 1}
    shim.set_disk(DiskState(Path("/"), **broken))  # type: ignore[arg-type]
    talk = (
        "os.write(pair[0].fileno(), b'abc')",
        "os.read(pair[1].fileno(), 3)",
        "pair[0].send(b'abc')",
        "pair[1].recv(3)",
        "os.writev(pipe[1], [b'abc'])",
        "os.read(pipe[0], 3)",
    )
    assert [child.ask(call) for call in talk] == [3, b"abc", 3, b"abc", 3, b"abc"]
    assert shim.hits == 0


def test_children_inherit_the_fault(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.EIO))
    forked = "(pid := os.fork()) or os._exit(libc.write(file, b'abc', 3) == -1 and ctypes.get_errno())"
    child.ask(forked)
    assert child.ask("os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])") == errno.EIO
    program = "import sys; open(sys.argv[1], 'w')"
    run = (
        f"subprocess.run([sys.executable, '-c', {program!r}, path + '/new'], capture_output=True, text=True)"
    )
    assert "Input/output error" in child.ask(f"{run}.stderr.splitlines()[-1]")
    assert shim.loaded == 2


def test_changes_are_never_seen_by_halves(shim: Shim, child: Child, data: Path) -> None:
    """Files below the one directory fail in the one way only."""
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            shim.set_disk(DiskState(data / "elsewhere", write_errno=errno.ENOSPC))
            shim.set_disk(DiskState(data, write_errno=errno.EIO))

    changer = threading.Thread(target=change)
    changer.start()
    try:
        write = "libc.pwrite(file, b'abc', 3, 0) < 0 and ctypes.get_errno()"
        assert set(child.ask(f"[{write} for _ in range(20_000)]")) == {False, errno.EIO}
    finally:
        ended.set()
        changer.join()


def test_fault_outlives_the_process(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.EIO))
    with Child(shim) as restarted:
        assert restarted.error_of(f"open({str(data / 'new')!r}, 'w')") == errno.EIO
    assert shim.loaded == 2


# --- clocks ------------------------------------------------------------------------------------------------

CLOCKS: Final = (
    "time.time()",
    "time.clock_gettime(5)",  # the coarse one
    "libc.time(None)",
    "(libc.gettimeofday(both := (ctypes.c_long * 2)(), None), both[0])[1]",
    "(libc.timespec_get(both := (ctypes.c_long * 2)(), 1), both[0])[1]",
)


@pytest.mark.parametrize("offset_s", [FAR_S, -FAR_S])
def test_wall_clock_jumps_and_comes_back(shim: Shim, child: Child, offset_s: float) -> None:
    monotonic_s = child.ask("time.monotonic()")
    shim.set_clock(offset_s)
    for clock in CLOCKS:
        assert abs(child.ask(clock) - time.time() - offset_s) < FAR_S / 2, clock
    assert 0 <= child.ask("time.monotonic()") - monotonic_s < FAR_S / 2
    shim.heal_clock()
    for clock in CLOCKS:
        assert abs(child.ask(clock) - time.time()) < FAR_S / 2, clock


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_wall_clock_runs_at_another_rate(shim: Shim, child: Child, rate: float) -> None:
    both = "(time.clock_gettime_ns(1), time.time_ns(), time.clock_gettime_ns(1))"
    shim.set_clock(0.0, rate)
    before, shown_before, after = child.ask(both)
    later, shown_later, latest = child.ask(f"(time.sleep(0.1), {both})[1]")
    shown = shown_later - shown_before
    assert (later - after) * rate - 1000 <= shown <= (latest - before) * rate + 1000


_NOW: Final = (
    "(now := time.time_ns() + 50_000_000, deadline := (ctypes.c_long * 2)(now // 10**9, now % 10**9))"
)
_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
_WAITS: Final = {
    "condition": "libc.pthread_cond_timedwait(zeros(64), mutex, deadline)",
    "mutex": "libc.pthread_mutex_timedlock(mutex, deadline)",
    "semaphore": "libc.sem_timedwait(zeros(64), deadline)",
    "sleep": "libc.clock_nanosleep(0, 1, deadline, None)",
    "futex": f"libc.syscall({_FUTEX.get(platform.machine())}, zeros(4), 256 + 9, 0, deadline, None, -1)",
    "event": "threading.Event().wait(0.05)",
}
"""Until a time on the wall clock, as threads of C and C++ do; and a wait of Python's own."""


@pytest.mark.parametrize("name", _WAITS)
@pytest.mark.parametrize("offset_s", [FAR_S, -FAR_S])
def test_waits_take_as_long_as_ever(shim: Shim, child: Child, name: str, offset_s: float) -> None:
    """A deadline that was not translated would be over at once, or in a day."""
    if name == "futex" and platform.machine() not in _FUTEX:
        pytest.skip(f"the number of futex on {platform.machine()} is not known here")
    child.ask("zeros = ctypes.create_string_buffer")
    child.ask("mutex = zeros(64); libc.pthread_mutex_lock(mutex)")
    shim.set_clock(offset_s)
    timed = f"(start := time.monotonic(), {_NOW}, {_WAITS[name]}, time.monotonic() - start)[-1]"
    assert child.ask(timed) >= 0.049


# --- connections -------------------------------------------------------------------------------------------


@pytest.fixture
def listeners() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as opened:
        one, other = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        yield one, other


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_connection_goes_to_another_port(
    shim: Shim, child: Child, listeners: tuple[socket.socket, socket.socket], host: str
) -> None:
    ports = [listener.getsockname()[1] for listener in listeners]
    family = "socket.AF_INET6" if ":" in host else "socket.AF_INET"
    connect = (
        f"(end := socket.socket({family}), end.connect(({host!r}, {ports[0]})), end.getpeername()[1])[2]"
    )
    assert child.ask(connect) == ports[0]
    shim.redirect({ports[0]: ports[1], 1: ports[0]})
    assert child.ask(connect) == ports[1]
    assert child.ask(connect.replace(str(ports[0]), "1")) == ports[0]
    assert child.ask(connect.replace(str(ports[0]), str(ports[1]))) == ports[1]
    shim.redirect({})
    assert child.ask(connect) == ports[0]


# --- the control file and the library ----------------------------------------------------------------------


def test_faults_of_all_sorts_go_together(shim: Shim, child: Child, data: Path) -> None:
    shim.set_disk(DiskState(data, write_errno=errno.EIO))
    shim.set_clock(FAR_S)
    shim.redirect({1: 2})
    assert child.error_of("os.write(file, b'abc')") == errno.EIO
    shim.heal_disk()
    assert child.error_of("os.write(file, b'abc')") == 0
    assert child.ask("time.time()") - time.time() > FAR_S / 2


def test_process_that_cannot_be_broken_does_not_run(library: Path, shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    for file, what in (("missing", "No such file"), ("short", "is no control file")):
        environment = {**os.environ, **shim.environment(), "PYKRAFT_SHIM": str(tmp_path / file)}
        result = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True)
        assert result.returncode == 127
        assert what in result.stderr and str(tmp_path / file) in result.stderr


def test_other_preloaded_libraries_stay(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert shim.environment()["LD_PRELOAD"].endswith("shim.so libother.so")


def test_path_that_cannot_be_preloaded_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    directory.mkdir()
    with pytest.raises(ShimError, match="space or a colon"):
        build_shim(directory)


def test_failed_compilation_says_why(tmp_path: Path) -> None:
    with pytest.raises(ShimError, match="cannot be compiled"):
        build_shim(tmp_path / "missing")


def test_what_cannot_be_is_refused(shim: Shim) -> None:
    with pytest.raises(ValueError, match="EIO, ENOSPC or EROFS"):
        DiskState(Path("/"), write_errno=errno.EPERM)
    with pytest.raises(ValueError, match="fail with EIO"):
        DiskState(Path("/"), fsync_errno=errno.ENOSPC)
    with pytest.raises(ValueError, match="probability"):
        DiskState(Path("/"), probability=1.5)
    with pytest.raises(ValueError, match="negative delay"):
        DiskState(Path("/"), read_delay_ms=-1)
    with pytest.raises(ValueError, match="path of more"):
        shim.set_disk(DiskState(Path("/" + "x/" * 600)))
    with pytest.raises(ValueError, match="rate"):
        shim.set_clock(0.0, 0.0)
    with pytest.raises(ValueError, match="no port"):
        shim.redirect({1: 65536})
    with pytest.raises(ValueError, match="at most"):
        shim.redirect(dict.fromkeys(range(1, MOST_PORTS + 2), 1))


# --- the Java virtual machine ------------------------------------------------------------------------------

_JAVA: Final = """
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import static java.nio.file.StandardOpenOption.*;

class Child {
    static FileChannel file;

    static Object answer(String[] question) throws Exception {
        switch (question[0]) {
            case "open": file = FileChannel.open(Path.of(question[1]), CREATE, WRITE, READ); return 0;
            case "write": return file.write(ByteBuffer.allocate(100));
            case "force": file.force(true); return 0;
            case "read": return file.read(ByteBuffer.allocate(10), 0);
            case "create": Files.createFile(Path.of(question[1])); return 0;
            case "time": return System.currentTimeMillis();
            case "sleep": Object lock = new Object(); synchronized (lock) { lock.wait(10); } return 0;
            default:
                try (Socket end = new Socket("127.0.0.1", Integer.parseInt(question[1]))) {
                    return end.isConnected();
                }
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = questions.readLine()) != null; ) {
            try { System.out.println(answer(line.split(" "))); }
            catch (IOException failed) { System.out.println(failed); }
        }
    }
}
"""


@pytest.mark.slow
def test_java_suffers_too(shim: Shim, data: Path, tmp_path: Path, listeners: Sequence[socket.socket]) -> None:
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("no Java with a compiler")
    (tmp_path / "Child.java").write_text(_JAVA)
    subprocess.run(["javac", "-d", str(tmp_path), str(tmp_path / "Child.java")], check=True)
    with Child(shim, ["java", "-Xshare:auto", "-cp", str(tmp_path), "Child"]) as child:
        assert child.answer(f"open {data}/java") == "0"
        assert [child.answer(call) for call in ("write", "force", "read", "sleep")] == ["100", "0", "10", "0"]
        shim.set_disk(DiskState(data, write_errno=errno.ENOSPC))
        assert "No space left on device" in child.answer("write")
        assert "No space left on device" in child.answer(f"create {data}/new")
        shim.set_disk(DiskState(data, fsync_errno=errno.EIO, read_errno=errno.EIO))
        assert "Input/output error" in child.answer("force")
        assert "Input/output error" in child.answer("read")
        shim.heal_disk()
        assert [child.answer(call) for call in ("write", "force", "read")] == ["100", "0", "10"]
        shim.set_clock(FAR_S)
        assert abs(int(child.answer("time")) / 1000 - time.time() - FAR_S) < FAR_S / 2
        assert child.answer("sleep") == "0"
        one, other = (listener.getsockname()[1] for listener in listeners)
        listeners[0].close()
        assert "ConnectException" in child.answer(f"connect {one}")
        shim.redirect({one: other})
        assert child.answer(f"connect {one}") == "true"
