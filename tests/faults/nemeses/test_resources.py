"""What a node's machine has can be made little, and is given back."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.surroundings.cgroup import (
    CgroupError,
    Cgroups,
    Hierarchies,
    find_hierarchies,
    remove_leftovers,
)
from pykraft.testing.processes.waits import PATIENCE_S, WaitError, wait_until

pytestmark = pytest.mark.slow

CHECKPOINT_INTERVALS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)
BUSY = "while True: pass"
GREEDY = """
import sys
print("up", flush=True)
sys.stdin.readline()
held = bytearray(256 << 20)
print("survived", flush=True)
"""


@pytest.fixture
def hierarchies() -> Hierarchies:
    try:
        return find_hierarchies()
    except CgroupError as error:
        pytest.skip(f"no control groups here: {error}")


@pytest.fixture
def cgroups(hierarchies: Hierarchies) -> Iterator[Cgroups]:
    cgroups = Cgroups(hierarchies, [1, 2], "test")
    try:
        try:
            cgroups.make()
        except CgroupError as error:
            pytest.skip(f"no control groups here: {error}")
        yield cgroups
    finally:
        cgroups.close()
    assert _groups_of(hierarchies, os.getpid()) == []


def _groups_of(hierarchies: Hierarchies, pid: int) -> list[Path]:
    return [path for directory in hierarchies.directories for path in directory.glob(f"*-{pid}-*")]


def test_processor_time_is_limited(hierarchies: Hierarchies, cgroups: Cgroups) -> None:
    stat = _groups_of(hierarchies, os.getpid())[0] / "node-1" / "cpu.stat"

    def throttled() -> int:
        return int(dict(line.split() for line in stat.read_text().splitlines())["nr_throttled"])

    with subprocess.Popen([*cgroups.prefix(1), sys.executable, "-c", BUSY]) as busy:
        try:
            assert throttled() == 0
            cgroups.limit_cpu(1, 0.05)
            wait_until("it is throttled", lambda: throttled() > 0, PATIENCE_S)
            cgroups.limit_cpu(1, None)
        finally:
            busy.kill()


@pytest.mark.parametrize("is_limited", [True, False])
def test_who_needs_more_memory_than_the_limit_is_killed(cgroups: Cgroups, is_limited: bool) -> None:
    command = [*cgroups.prefix(2), sys.executable, "-c", GREEDY]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as greedy:
        assert greedy.stdout is not None
        greedy.stdout.readline()
        assert cgroups.resident_bytes(2) > 0
        cgroups.limit_memory(2, cgroups.resident_bytes(2) + (16 << 20))
        if not is_limited:
            cgroups.limit_memory(2, None)
        said, _ = greedy.communicate("go\n", timeout=PATIENCE_S)
    assert (said, greedy.returncode) == (("", -signal.SIGKILL) if is_limited else ("survived\n", 0))


def test_groups_of_dead_runs_are_removed_and_those_of_living_ones_stay(
    hierarchies: Hierarchies, cgroups: Cgroups
) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    left = [directory / f"pykraft-jepsen-{dead.pid}-1-run" for directory in hierarchies.directories]
    for directory in left:
        (directory / "node-1").mkdir(parents=True)
    assert set(remove_leftovers(hierarchies)) >= set(left)
    assert not any(directory.exists() for directory in left)
    assert _groups_of(hierarchies, os.getpid())


def test_node_without_free_files_takes_no_connections_until_they_are_given_back(tmp_path: Path) -> None:
    """It may end: the node loses its reserve as well, and gRPC aborts without a descriptor."""
    properties = {**FAST_FAILOVER, **dict.fromkeys(CHECKPOINT_INTERVALS, "600000")}
    with ProcessCluster(tmp_path / "cluster", 1, properties) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic("t", 1, 1)
        fault = Fault(0, "few-files", Target.ANY, 0.0, 0.0, settings={"spare_files": 2})
        node = cluster.nodes[1]
        pid = node.pid
        before = _limits(pid)
        give_back = KINDS["few-files"].inflict(cluster, fault, [1])
        assert _limits(pid) != before
        place = cluster.addresses[1].host, cluster.addresses[1].port
        with ExitStack() as opened:

            def takes_no_more() -> bool:
                try:
                    opened.enter_context(socket.create_connection(place, PATIENCE_S))
                    return _open_files(pid) >= _limits(pid)[0]
                except (ConnectionError, FileNotFoundError):
                    return not node.running

            wait_until("no file is free", takes_no_more, PATIENCE_S)
        give_back()
        assert not node.running or _limits(pid) == before
        cluster.ensure_running([1])
        try:
            cluster.wait_back(1, PATIENCE_S)
        except WaitError:  # it was about to end
            cluster.ensure_running([1])
            cluster.wait_back(1, PATIENCE_S)
        cluster.wait_in_sync("t", PATIENCE_S)
        assert cluster.stop() == []


def _limits(pid: int | None) -> tuple[int, int]:
    assert pid is not None
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft, hard = next(line for line in lines if line.startswith("Max open files")).split()[3:5]
    return int(soft), int(hard)


def _open_files(pid: int | None) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
