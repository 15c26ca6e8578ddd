"""One process per data directory."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.runtime.directory_lock import DirectoryInUseError, DirectoryLock


def test_a_locked_directory_is_refused_and_a_released_one_can_be_locked(tmp_path: Path) -> None:
    held = DirectoryLock(str(tmp_path))
    with pytest.raises(DirectoryInUseError, match="in use by another process"):
        DirectoryLock(str(tmp_path))
    held.release()
    DirectoryLock(str(tmp_path)).release()


def boot_file(tmp_path: Path, boot: str = "boot-1") -> str:
    (tmp_path / boot).write_text(f"{boot}\n")
    return str(tmp_path / boot)


def enter(directory: Path, holder: str, boot: str) -> tuple[str, ...]:
    lock = DirectoryLock(str(directory), boot)
    try:
        return lock.enter(holder)
    finally:
        lock.release()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_next_owner_of_a_directory_learns_the_previous_ones(tmp_path: Path, data: Path) -> None:
    boot = boot_file(tmp_path)
    assert enter(data, "a", boot) == ()
    assert enter(data, "b", boot) == ("a",)
    assert enter(data, "c", boot) == ("a", "b")


@pytest.mark.parametrize("was_there_with", [None, 0o644])
def test_only_the_owner_can_read_the_previous_owners(
    tmp_path: Path, data: Path, was_there_with: int | None
) -> None:
    """The names of owners are secrets."""
    file = data / ".lock"
    if was_there_with is not None:
        file.touch()
        file.chmod(was_there_with)
    enter(data, "a", boot_file(tmp_path))
    assert file.stat().st_mode & 0o777 == 0o600


def test_only_the_latest_owners_are_kept(tmp_path: Path, data: Path) -> None:
    boot = boot_file(tmp_path)
    for number in range(40):
        enter(data, f"h{number}", boot)
    assert enter(data, "last", boot) == tuple(f"h{number}" for number in range(25, 40))


def test_full_disk_does_not_cost_the_previous_owners(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = boot_file(tmp_path)
    enter(data, "a", boot)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="full"):
            enter(data, "b", boot)
    assert enter(data, "c", boot) == ("a",)


@pytest.mark.parametrize(
    "copy", [shutil.copytree, lambda a, b: subprocess.run(["cp", "-a", a, b], check=True)]
)
def test_copy_of_a_live_directory_proves_no_process_dead(
    tmp_path: Path, data: Path, copy: Callable[[Path, Path], object]
) -> None:
    boot = boot_file(tmp_path)
    live = DirectoryLock(str(data), boot)
    live.enter("live")
    copy(data, tmp_path / "copy")
    assert enter(tmp_path / "copy", "impostor", boot) == ()
    with pytest.raises(DirectoryInUseError):
        DirectoryLock(str(data), boot)
    live.release()


def test_copy_in_place_of_the_original_proves_no_process_dead(tmp_path: Path, data: Path) -> None:
    """The live process still holds the lock of the file that was moved away."""
    boot = boot_file(tmp_path)
    live = DirectoryLock(str(data), boot)
    live.enter("live")
    shutil.copytree(data, tmp_path / "copy")
    shutil.rmtree(data)
    (tmp_path / "copy").rename(data)
    assert enter(data, "impostor", boot) == ()
    live.release()


def test_another_machine_or_another_boot_proves_no_process_dead(tmp_path: Path, data: Path) -> None:
    """A cloned disk has the same inode numbers; its kernel has another boot id."""
    boot = boot_file(tmp_path)
    enter(data, "a", boot)
    assert enter(data, "clone", boot_file(tmp_path, "boot-2")) == ()
    assert enter(data, "b", boot) == (), "an owner in between would have left no name of this boot"


def test_without_a_boot_id_nothing_is_proved(tmp_path: Path, data: Path) -> None:
    boot = boot_file(tmp_path)
    enter(data, "a", boot)
    assert enter(data, "b", str(tmp_path / "absent")) == ()


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff" * 5000, b"boot-1", b"boot-1 1 1\nx\n", b"a\nb\nc"])
def test_damaged_file_proves_nothing_and_is_repaired(tmp_path: Path, data: Path, content: bytes) -> None:
    boot = boot_file(tmp_path)
    (data / ".lock").write_bytes(content)
    assert enter(data, "a", boot) == ()
    assert enter(data, "b", boot) == ("a",)
