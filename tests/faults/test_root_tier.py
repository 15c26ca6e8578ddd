"""The root tier: a network, disks and groups of a run's own, of which nothing is left. Needs root.

Everything runs in other processes: this one enters no namespaces.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.history import NEMESIS, read_history
from pykraft.jepsen_like.faults.reports.report import EXIT_CLEAN, EXIT_DOES_NOT_COUNT
from pykraft.jepsen_like.faults.surroundings import loop_disk, namespaces
from pykraft.jepsen_like.faults.surroundings.cgroup import CgroupError, find_hierarchies, remove_leftovers
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

PARTS = Path(__file__).parent / "in_namespaces.py"


@pytest.fixture(scope="module", autouse=True)
def root_tier() -> None:
    """Skip where it cannot be: containers often have the commands but not the permission."""
    reason = namespaces.why_unavailable() or loop_disk.why_unavailable()
    if reason is None:
        module = "pykraft.jepsen_like.faults.surroundings"
        program = f"from {module} import namespaces; namespaces.enter_own_namespaces()"
        tried = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        reason = None if tried.returncode == 0 else tried.stderr
    if reason is not None:
        pytest.skip(f"no root tier here: {reason}")


def left_of(directory: Path, pid: int) -> list[str]:
    """What there still is of a run: loop devices, mounts, network namespaces, control groups."""
    return [
        *(line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line),
        *(str(file) for file in _backing_files() if str(directory) in file.read_text()),
        *(str(path) for path in Path("/run/netns").glob("node-*")),
        *(str(path) for path in _groups(pid)),
    ]


def _backing_files() -> Iterator[Path]:
    return Path("/sys/block").glob("loop*/loop/backing_file")


def _groups(pid: int) -> Iterator[Path]:
    try:
        directories = find_hierarchies().directories
    except CgroupError:
        return
    for directory in directories:
        yield from directory.glob(f"*-{pid}-*")


def test_links_are_cut_reset_lossy_and_throttled() -> None:
    result = subprocess.run(
        [sys.executable, str(PARTS), "links"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_run_in_namespaces_does_not_hold_the_disks_of_another(tmp_path: Path) -> None:
    """Where mounts are private it has a copy of them, with which a file system lives on."""
    disk = loop_disk.LoopDisk(tmp_path / "node-1.img", loop_disk.mount_point(tmp_path, 1))
    disk.make()
    program = "print('in', flush=True); input()"
    enter = (
        "from pykraft.jepsen_like.faults.surroundings import namespaces; namespaces.enter_own_namespaces(); "
    )
    command = [sys.executable, "-c", enter + program]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "in\n"
            disk.cut_power()
            disk.unmount()
            disk.mount()
            (disk.mount_point / "file").write_text("written after the power was back")
            assert other.poll() is None
    finally:
        disk.unmount()


def test_killed_run_leaves_nothing_even_with_a_frozen_disk(tmp_path: Path) -> None:
    command = [sys.executable, str(PARTS), "stand", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        node = int(runner.stdout.readline())
        assert list(_groups(runner.pid))
        assert os.readlink(f"/proc/{node}/ns/net") != os.readlink("/proc/self/ns/net")
        runner.send_signal(signal.SIGKILL)
    wait_until("the node is gone", lambda: not Path(f"/proc/{node}").exists(), PATIENCE_S)

    def is_clean() -> bool:
        with suppress(CgroupError):
            remove_leftovers(find_hierarchies())  # as the next run does
        return not left_of(tmp_path, runner.pid)

    wait_until("nothing is left", is_clean, PATIENCE_S)


def test_fault_run_finds_no_anomaly_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(PARTS), "play", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as runner:
        said, _ = runner.communicate()
    assert runner.returncode in (EXIT_CLEAN, EXIT_DOES_NOT_COUNT), said
    (history,) = tmp_path.glob("*/history.jsonl")
    ops = Counter(event.op for event in read_history(history) if event.process == NEMESIS)
    assert ops["tail-loss"] == 3, said
    assert left_of(tmp_path, runner.pid) == []
