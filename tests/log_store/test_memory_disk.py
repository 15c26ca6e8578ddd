"""The disk in memory: what a crash may lose and what it must keep."""

import errno
import random

import pytest

from pykraft.runtime.disk import UnreadableError
from pykraft.runtime.simulated.memory_disk import DiskCall, MemoryDisk
from tests.log_store.spy import SpyDisk

SEEDS = range(60)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    return disk


def _outcomes(prepare: object, path: str = "/data/a") -> set[bytes | None]:
    found: set[bytes | None] = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        disk.make_dirs("/data")
        prepare(disk)  # type: ignore[operator]
        disk.crash(random.Random(seed))
        found.add(disk.read(path) if disk.exists(path) else None)
    return found


def test_flushed_bytes_survive_and_the_rest_is_truncated_anywhere() -> None:
    def prepare(disk: MemoryDisk) -> None:
        file = disk.open("/data/a")
        file.append(b"kept")
        file.flush()
        disk.flush_dir("/data")
        file.append(b"12")
        file.append(b"34")

    assert _outcomes(prepare) == {b"kept", b"kept1", b"kept12", b"kept123", b"kept1234"}


def test_file_without_flushed_directory_entry_may_vanish() -> None:
    def prepare(disk: MemoryDisk) -> None:
        file = disk.open("/data/a")
        file.append(b"kept")
        file.flush()

    assert _outcomes(prepare) == {b"kept", None}


def test_unflushed_truncation_may_be_undone() -> None:
    def prepare(disk: MemoryDisk) -> None:
        file = disk.open("/data/a")
        file.append(b"abcdef")
        file.flush()
        disk.flush_dir("/data")
        file.truncate(4)
        file.truncate(2)
        file.append(b"X")

    assert _outcomes(prepare) == {b"abcdef", b"ab", b"abX"}


def test_unflushed_rename_leaves_the_old_or_the_new_but_never_neither() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.write_atomic("/data/a", b"old")
        file = disk.open("/data/b")
        file.append(b"new")
        file.flush()
        disk.rename("/data/b", "/data/a")

    assert _outcomes(prepare) == {b"old", b"new"}


def test_atomic_write_is_durable_on_return() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.make_dirs("/data/x/y")
        disk.write_atomic("/data/x/y/a", b"one")
        disk.write_atomic("/data/x/y/a", b"two")

    assert _outcomes(prepare, "/data/x/y/a") == {b"two"}


def test_unflushed_removal_may_be_undone() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.write_atomic("/data/a", b"back")
        disk.remove("/data/a")

    assert _outcomes(prepare) == {b"back", None}


def test_directory_changes_are_lost_from_the_end() -> None:
    found = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        disk.make_dirs("/data")
        for name in "abc":
            disk.open(f"/data/{name}")
        disk.crash(random.Random(seed))
        found.add("".join(disk.list("/data")))
    assert found == {"", "a", "ab", "abc"}


def test_zero_tail_keeps_the_length_without_the_bytes() -> None:
    found = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        disk.make_dirs("/data")
        disk.write_atomic("/data/a", b"kept")
        disk.open("/data/a").append(b"123")
        disk.crash(random.Random(seed), zero_tails=True)
        found.add(disk.read("/data/a"))
    assert {b"kept\0\0\0", b"kept1\0\0", b"kept1", b"kept123"} <= found
    assert all(len(content) <= 7 and content.startswith(b"kept") for content in found)


def test_handles_from_before_a_crash_are_dead(disk: MemoryDisk) -> None:
    file = disk.open("/data/a")
    disk.crash(random.Random(1))
    for use in (lambda: file.append(b"x"), file.flush, file.size, lambda: file.pread(0, 1)):
        with pytest.raises(OSError, match="before a crash"):
            use()


def test_injected_faults_strike_the_named_operation_and_path(disk: MemoryDisk) -> None:
    disk.inject("append", errno.ENOSPC, path_part="b")
    first, second = disk.open("/data/a"), disk.open("/data/b")
    first.append(b"fine")
    with pytest.raises(OSError, match="injected") as raised:
        second.append(b"1234")
    assert raised.value.errno == errno.ENOSPC
    assert second.pread(0, 10) == b"12"
    second.append(b"34")
    disk.inject("flush", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        first.flush()
    with pytest.raises(OSError, match="injected"):
        first.flush()
    second.flush()
    disk.inject("rename", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        disk.rename("/data/a", "/data/c")


def test_bad_sector_fails_every_read_that_reaches_it(disk: MemoryDisk) -> None:
    disk.write_atomic("/data/a", b"0123456789")
    disk.make_unreadable("/data/a", 4, 2)
    file = disk.open("/data/a", create=False)
    assert file.pread(0, 4) == b"0123" and file.pread(6, 100) == b"6789"
    for position, length_bytes in ((0, 5), (5, 1), (4, 2), (0, 100)):
        with pytest.raises(UnreadableError) as raised:
            file.pread(position, length_bytes)
        assert (raised.value.errno, raised.value.filename) == (errno.EIO, "/data/a")
    with pytest.raises(UnreadableError):
        disk.read("/data/a")
    disk.rename("/data/a", "/data/b")
    disk.flush_dir("/data")
    disk.crash(random.Random(1))
    with pytest.raises(UnreadableError):
        disk.read("/data/b")
    disk.write_atomic("/data/b", b"anew")
    assert disk.read("/data/b") == b"anew"
    disk.make_unreadable("/data/b", 2)
    disk.open("/data/b").truncate(2)
    disk.open("/data/b").append(b"xy")
    assert disk.read("/data/b") == b"anxy"


def test_injected_errors_of_reading_name_what_cannot_be_read(disk: MemoryDisk) -> None:
    disk.write_atomic("/data/a", b"x")
    for operation, call in (
        ("open", lambda: disk.open("/data/a", create=False)),
        ("read", lambda: disk.read("/data/a")),
        ("list", lambda: disk.list("/data")),
    ):
        disk.inject(operation, errno.EIO)
        with pytest.raises(UnreadableError, match="/data"):
            call()
        disk.inject(operation, errno.EMFILE)
        with pytest.raises(OSError, match="injected") as raised:
            call()
        assert not isinstance(raised.value, UnreadableError)
    disk.inject("open", errno.EIO)
    with pytest.raises(OSError, match="injected") as created:
        disk.open("/data/b")
    assert not isinstance(created.value, UnreadableError), "the call was a write"


def test_calls_are_recorded_in_order(disk: MemoryDisk) -> None:
    disk.calls.clear()
    disk.write_atomic("/data/a", b"x")
    assert list(disk.calls) == [
        DiskCall("write_atomic", "/data/a"),
        DiskCall("open", "/data/a.tmp"),
        DiskCall("truncate", "/data/a.tmp"),
        DiskCall("append", "/data/a.tmp"),
        DiskCall("flush", "/data/a.tmp"),
        DiskCall("rename", "/data/a.tmp", "/data/a"),
        DiskCall("flush_dir", "/data"),
    ]


def test_tree_behaves_like_a_file_system(disk: MemoryDisk) -> None:
    disk.make_dirs("/data/x/y")
    disk.open("/data/x/f").append(b"1")
    held = disk.open("/data/x/f", create=False)
    assert disk.list("/data/x") == ["f", "y"]
    assert disk.is_dir("/data/x") and not disk.is_dir("/data/x/f") and not disk.exists("/data/z")
    disk.rename("/data/x", "/data/w")
    disk.rename("/data/w/f", "/data/g")
    assert disk.read("/data/g") == b"1"
    disk.remove("/data/g")
    disk.remove("/data/g")
    assert held.pread(0, 1) == b"1" and held.fileno() == -1
    disk.remove_tree("/data/w")
    disk.remove_tree("/data/w")
    assert disk.list("/data") == []
    for missing in (lambda: disk.read("/data/q"), lambda: disk.list("/q"), lambda: disk.open("/q/a")):
        with pytest.raises(FileNotFoundError):
            missing()
    with pytest.raises(FileNotFoundError):
        disk.open("/data/q", create=False)


def test_spy_names_a_flush_only_after_it_happened(disk: MemoryDisk) -> None:
    spy = SpyDisk(disk)
    file = spy.open("/data/a")
    file.append(b"x")
    disk.inject("flush", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        file.flush()
    assert [call.operation for call in spy.calls] == ["open", "append"]
    spy.write_atomic("/data/b", b"y")
    spy.rename("/data/b", "/data/c")
    spy.flush_dir("/data")
    assert [call.operation for call in spy.calls[2:]] == ["write_atomic", "rename", "flush_dir"]
    assert spy.read("/data/c") == b"y" and spy.list("/data") == ["a", "c"]
