"""The disk port on real files."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykraft.runtime import os_disk
from pykraft.runtime.disk import UnreadableError
from pykraft.runtime.os_disk import OsDisk


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


def test_appended_bytes_are_read_at_their_position(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert file.size() == 11
    assert file.pread(6, 100) == b"world"
    buffer = bytearray(4)
    assert file.pread_into(9, memoryview(buffer)) == 2
    assert bytes(buffer) == b"ld\0\0"
    file.truncate(5)
    file.append(b"!")
    assert disk.read(f"{tmp_path}/a") == b"hello!"
    assert os.fstat(file.fileno()).st_size == file.size() == 6
    file.close()
    file.close()


def test_reopened_file_is_appended_to(disk: OsDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/a").append(b"one")
    file = disk.open(f"{tmp_path}/a", create=False)
    file.append(b"two")
    assert disk.read(f"{tmp_path}/a") == b"onetwo"


def test_missing_file_is_not_created_unless_asked(disk: OsDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/a", create=False)
    with pytest.raises(FileNotFoundError):
        disk.read(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{tmp_path}/nowhere")
    disk.remove(f"{tmp_path}/a")
    disk.remove_tree(f"{tmp_path}/nowhere")
    assert not disk.exists(f"{tmp_path}/a")


def test_directories_are_made_listed_renamed_and_removed(disk: OsDisk, tmp_path: Path) -> None:
    disk.make_dirs(f"{tmp_path}/x/y/z")
    disk.make_dirs(f"{tmp_path}/x/y/z")
    disk.open(f"{tmp_path}/x/y/b").close()
    assert disk.list(f"{tmp_path}/x/y") == ["b", "z"]
    assert disk.is_dir(f"{tmp_path}/x/y/z") and not disk.is_dir(f"{tmp_path}/x/y/b")
    disk.rename(f"{tmp_path}/x/y", f"{tmp_path}/x/w")
    assert disk.exists(f"{tmp_path}/x/w/b") and not disk.exists(f"{tmp_path}/x/y")
    disk.remove_tree(f"{tmp_path}/x")
    assert disk.list(str(tmp_path)) == []


def test_removed_file_stays_readable_through_open_handles(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"still here")
    disk.remove(f"{tmp_path}/a")
    assert file.pread(0, 100) == b"still here"


def test_dropped_file_closes_its_descriptor(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a")
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def _spy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record the system calls that make data durable, each with the path of its descriptor."""
    calls: list[tuple[str, str]] = []
    real_sync, real_fsync, real_replace = os_disk._sync_data, os.fsync, os.replace

    def sync(descriptor: int) -> None:
        real_sync(descriptor)
        calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def replace(source: str, target: str) -> None:
        real_replace(source, target)
        calls.append(("rename", target))

    monkeypatch.setattr(os_disk, "_sync_data", sync)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return calls


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads descriptors in /proc")


@needs_proc
def test_atomic_write_flushes_file_then_renames_then_flushes_directory(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/quorum-state"
    Path(f"{path}.tmp").write_bytes(b"left behind by a crash, and longer than the new content")
    calls = _spy(monkeypatch)
    disk.write_atomic(path, b"vote")
    assert calls == [("sync", f"{path}.tmp"), ("rename", path), ("fsync", str(tmp_path))]
    assert disk.read(path) == b"vote"
    assert disk.list(str(tmp_path)) == ["quorum-state"]


@needs_proc
def test_flush_and_new_directories_reach_the_medium(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _spy(monkeypatch)
    disk.make_dirs(f"{tmp_path}/x/y")
    file = disk.open(f"{tmp_path}/x/y/a")
    file.append(b"data")
    file.flush()
    disk.flush_dir(f"{tmp_path}/x/y")
    assert calls == [
        ("fsync", str(tmp_path)),
        ("fsync", f"{tmp_path}/x"),
        ("sync", f"{tmp_path}/x/y/a"),
        ("fsync", f"{tmp_path}/x/y"),
    ]


def test_file_whose_flush_failed_once_never_flushes_again(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"data")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "medium error")

    with monkeypatch.context() as patch:
        patch.setattr(os_disk, "_sync_data", broken)
        with pytest.raises(OSError, match="medium error"):
            file.flush()
    with pytest.raises(OSError, match="earlier flush") as raised:
        file.flush()
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("call", ["pread", "preadv", "open", "create", "read", "listdir"])
def test_bad_sector_is_distinguished_from_other_read_errors(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = f"{tmp_path}/a"
    disk.write_atomic(path, b"data")
    file = disk.open(path)

    def broken(*_arguments: object, **_options: object) -> None:
        raise OSError(number, "medium error")

    uses: dict[str, Callable[[], object]] = {
        "pread": lambda: file.pread(0, 1),
        "preadv": lambda: file.pread_into(0, memoryview(bytearray(1))),
        "open": lambda: disk.open(path, create=False),
        "create": lambda: disk.open(path),
        "read": lambda: disk.read(path),
        "listdir": lambda: disk.list(path),
    }
    if call == "read":
        monkeypatch.setattr(os_disk, "open", broken, raising=False)
    else:
        monkeypatch.setattr(os, "open" if call == "create" else call, broken)
    with pytest.raises(OSError, match="medium error") as raised:
        uses[call]()
    is_unreadable = number == errno.EIO and call != "create"
    assert isinstance(raised.value, UnreadableError) == is_unreadable
    assert raised.value.errno == number
    if is_unreadable:
        assert raised.value.filename == path


def test_failed_atomic_write_leaves_the_old_content(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/state"
    disk.write_atomic(path, b"old")

    def broken(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os_disk, "_sync_data", broken)
    with pytest.raises(OSError, match="no space"):
        disk.write_atomic(path, b"new")
    assert disk.read(path) == b"old"


def test_short_writes_are_continued(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{tmp_path}/a")
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, bytes(data)[:3]))
    file.append(b"0123456789")
    monkeypatch.undo()
    assert file.size() == 10
    assert disk.read(f"{tmp_path}/a") == b"0123456789"


def test_size_counts_what_a_failed_append_left_behind(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/a")
    real_write = os.write
    answers = iter([4])

    def full(descriptor: int, data: bytes) -> int:
        for size in answers:
            return real_write(descriptor, bytes(data)[:size])
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        file.append(b"0123456789")
    assert file.size() == 4


def test_concurrent_replacements_of_one_file_leave_one_of_the_contents(disk: OsDisk, tmp_path: Path) -> None:
    contents = [bytes([48 + number]) * (number + 1) * 1000 for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: disk.write_atomic(f"{tmp_path}/state", content), contents * 4))
    assert disk.read(f"{tmp_path}/state") in contents
    assert disk.list(str(tmp_path)) == ["state"]
