"""The budget of open files: what is refused, which files are closed, and that the count is right."""

import errno
import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.rpc_limits import limits_within


class Holder:
    """Holds files of a disk; closes one when it must, or once it is found idle."""

    def __init__(self, disk: OsDisk, path: Path, *, is_used: bool = False) -> None:
        self.file = disk.open(str(path))
        self.is_used = is_used
        self.asked = 0
        disk.register_holder(self)

    @property
    def is_open(self) -> bool:
        return hasattr(self, "file")

    def release_files(self, *, is_urgent: bool) -> bool:
        self.asked += 1
        if self.is_used and not is_urgent:
            self.is_used = False
            return False
        if self.is_open:
            del self.file
        return True


def connect(budget: FileBudget) -> int:
    """Open as many connections as the budget allows."""
    count = 0
    while True:
        budget.connection_made()
        if not budget.may_stay():
            budget.connection_lost()
            return count
        count += 1


@pytest.mark.parametrize("limit", [256, 1024, 4096, 1 << 20])
def test_connections_leave_a_quarter_to_files_and_a_reserve_to_the_rest(limit: int) -> None:
    budget = FileBudget(limit)
    assert 32 <= budget.reserve <= 512
    count = connect(budget)
    assert limit // 4 <= limit - budget.reserve - 2 * count <= limit // 4 + 1
    assert budget.files_limit >= limit // 4
    budget.connection_lost()
    assert connect(budget) == 1


def test_files_beyond_their_quarter_take_from_connections() -> None:
    budget = FileBudget(1000)
    free = connect(budget)
    for _ in range(free):
        budget.connection_lost()
    for _ in range(500):
        budget.file_opened()
    assert connect(budget) == free - 125


def test_files_are_counted_while_they_are_open_however_they_are_closed(tmp_path: Path) -> None:
    budget = FileBudget(1000)
    disk = OsDisk(budget)
    first, second = disk.open(str(tmp_path / "a")), disk.open(str(tmp_path / "b"))
    assert budget.files == 2
    first.close()
    first.close()
    assert budget.files == 1
    del second
    gc.collect()
    assert budget.files == 0
    disk.write_atomic(str(tmp_path / "c"), b"x")
    assert budget.files == 0
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "absent"), create=False)
    with pytest.raises(IsADirectoryError):
        disk.open(str(tmp_path))
    assert budget.files == 0


def test_first_opened_file_is_closed_first_unless_it_is_in_use(tmp_path: Path) -> None:
    budget = FileBudget(40)  # 32 in reserve, 8 files
    disk = OsDisk(budget)
    holders = [Holder(disk, tmp_path / str(n), is_used=n == 0) for n in range(8)]
    Holder(disk, tmp_path / "8")
    assert [holder.is_open for holder in holders] == [True, False] + [True] * 6
    later = [Holder(disk, tmp_path / f"later{n}") for n in range(8)]
    assert budget.files <= 8
    assert not any(holder.is_open for holder in holders)
    assert all(holder.is_open for holder in later)


def test_if_all_files_are_in_use_one_is_closed_anyway(tmp_path: Path) -> None:
    budget = FileBudget(40)
    disk = OsDisk(budget)
    holders = [Holder(disk, tmp_path / str(n), is_used=True) for n in range(30)]
    for holder in holders:
        holder.is_used = True
    Holder(disk, tmp_path / "new")
    assert budget.files <= 9


def test_opening_asks_a_bounded_number_of_others(tmp_path: Path) -> None:
    class Stubborn(Holder):
        def release_files(self, *, is_urgent: bool) -> bool:
            self.asked += 1
            return False

    budget = FileBudget(40)
    disk = OsDisk(budget)
    holders = [Stubborn(disk, tmp_path / str(n)) for n in range(500)]
    for holder in holders:
        holder.asked = 0
    file = disk.open(str(tmp_path / "new"))
    assert 0 < sum(holder.asked for holder in holders) <= 2 * 64
    file.close()


def test_holders_are_not_kept_alive(tmp_path: Path) -> None:
    budget = FileBudget(1000)
    disk = OsDisk(budget)
    holder = Holder(disk, tmp_path / "a")
    del holder
    gc.collect()
    assert budget.files == 0
    assert len(budget._holders) == 0


def test_descriptor_that_the_system_refuses_is_taken_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has other open files than those that are counted."""
    budget = FileBudget(10_000)
    disk = OsDisk(budget)
    holders = [Holder(disk, tmp_path / str(n), is_used=True) for n in range(100)]
    real = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        if budget.files > 90:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    file = disk.open(str(tmp_path / "new"))
    assert sum(holder.is_open for holder in holders) <= 90
    for holder in holders:
        holder.release_files(is_urgent=True)
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.ENFILE, "Too many")))
    with pytest.raises(OSError, match="Too many"):
        disk.open(str(tmp_path / "other"))
    file.close()


@pytest.mark.parametrize(("soft", "hard", "expected"), [(100, 700, 700), (700, 700, 700)])
def test_soft_limit_is_raised_to_the_hard_one_and_logged(soft: int, hard: int, expected: int) -> None:
    code = (
        "import logging, resource, sys\n"
        "logging.basicConfig(level=logging.INFO, stream=sys.stdout)\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from pykraft.runtime.file_limit import raise_file_limit\n"
        "print(raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    notified, limits = done.stdout.splitlines()
    assert limits == f"{expected} {expected} {hard}"
    assert (f"from {soft} to {hard}" if soft < hard else f"limit is {soft}") in notified


def test_limit_that_cannot_be_raised_is_used_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where the hard limit is infinite and setting it is refused."""
    from pykraft.runtime.file_limit import raise_file_limit

    tried = []

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        tried.append(limits[0])
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit() == 10_240
    assert tried == [resource.RLIM_INFINITY, 10_240]


@pytest.mark.parametrize(
    ("files", "servers", "connections"),
    [
        (256, 1, 32),
        (256, 2, 16),
        (1024, 1, 128),
        (20_000, 1, 500),
        (1 << 20, 3, 500),
        (4, 9, 1),
        (256, 0, 32),
    ],
)
def test_connections_between_nodes_take_an_eighth_of_all_files(
    files: int, servers: int, connections: int
) -> None:
    assert limits_within(files, servers).connections == connections


def test_connections_between_nodes_are_kept_free_of_clients_and_logs() -> None:
    without, budget = FileBudget(1000), FileBudget(1000, rpc_connections=125)
    assert budget.reserve == without.reserve + 125 and budget.files_limit == without.files_limit - 125
    for _ in range(10_000):
        budget.connection_made()
        if not budget.may_stay():
            break
    assert 2 * (budget.connections - 1) + 1000 // 4 + 125 <= 1000
