"""What a runner started ends with it, however it ends; nobody else's process does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykraft.testing.processes.keeper import Keeper, end_leftovers, start_time
from pykraft.testing.processes.waits import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are told apart by /proc")

FOREVER = [sys.executable, "-c", "import time; time.sleep(3600)"]
# A runner that starts a node and says which; then it waits to be killed, alone or with its keeper.
RUNNER = """
import subprocess, sys, time
from pathlib import Path
from pykraft.testing.processes.keeper import Keeper
keeper = Keeper(Path(sys.argv[1]))
node = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
keeper.watch(node.pid)
print(node.pid, keeper._process.pid, flush=True)
time.sleep(3600)
"""


@contextmanager
def forever() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(FOREVER, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def runner(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """The process, and the ids of its node and its keeper."""
    command = [sys.executable, "-c", RUNNER, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        node, keeper = map(int, process.stdout.readline().split())
        yield process, node, keeper
    finally:
        process.kill()
        process.communicate()


def is_gone(pid: int) -> bool:
    """A process that has ended and that nobody has reaped is gone as well."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def test_closing_ends_what_is_left_and_leaves_no_file(tmp_path: Path) -> None:
    with forever() as node:
        keeper = Keeper(tmp_path)
        keeper.watch(node.pid)
        keeper.close()
        assert node.wait(20) == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_killed_runner_leaves_nothing(tmp_path: Path) -> None:
    with runner(tmp_path) as (process, node, keeper):
        process.kill()
        wait_until("the node is gone", lambda: is_gone(node), 20)
        wait_until("the keeper is gone", lambda: is_gone(keeper), 20)


def test_next_run_ends_what_a_runner_and_its_keeper_left(tmp_path: Path) -> None:
    with runner(tmp_path / "") as (process, node, keeper):
        assert end_leftovers(tmp_path) == []  # the runner is alive
        os.kill(keeper, signal.SIGKILL)
        process.kill()
        process.wait()
        assert end_leftovers(tmp_path) == [node]
        wait_until("the node is gone", lambda: is_gone(node), 20)
    assert end_leftovers(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_run_that_has_noted_nothing_yet_keeps_its_file(tmp_path: Path) -> None:
    (tmp_path / "processes").touch()
    assert end_leftovers(tmp_path) == []
    assert (tmp_path / "processes").exists()


def test_stranger_with_the_same_id_is_spared(tmp_path: Path) -> None:
    with forever() as stranger:
        started = start_time(stranger.pid)
        assert started is not None
        (tmp_path / "processes").write_text(f"1 0\n{stranger.pid} {started - 1}\n{os.getpid()} x\n")
        assert end_leftovers(tmp_path) == []
        assert not is_gone(stranger.pid)
