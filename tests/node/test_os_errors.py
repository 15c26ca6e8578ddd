"""Errors of the operating system are one line that says what to do."""

import errno
import os
import pwd
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykraft.configuration.keys import ConfigError
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.cli.root import cli
from pykraft.node.config import load_server_config
from pykraft.node.format import format_directories
from pykraft.node.os_errors import describe, is_users
from pykraft.runtime.directory_lock import DirectoryInUseError, DirectoryLock
from pykraft.runtime.os_disk import OsDisk

ME = pwd.getpwuid(os.geteuid()).pw_name
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refusal(path: Path) -> PermissionError:
    return PermissionError(errno.EACCES, "Permission denied", str(path))


def test_path_of_another_user_names_both_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    for path in (tmp_path, tmp_path / "not" / "yet"):
        assert describe(refusal(path)) == (
            f"{path}: Permission denied: {tmp_path} belongs to {ME}, this process runs as user 4000000:"
            f" run it as {ME}, or chown {tmp_path}"
        )


def test_own_path_without_the_permission_names_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    said = describe(refusal(tmp_path / "x"))
    assert said.endswith(f": {tmp_path} has mode 555: chmod u+rwX {tmp_path}")


def test_full_disk_names_the_path_that_is_known() -> None:
    helps = "No space left on device: free some space, or move the directory"
    assert describe(FULL) == helps
    assert describe(FULL, "/d") == f"/d: {helps}"
    assert (
        describe(DirectoryInUseError("/d is in use by another process")) == "/d is in use by another process"
    )


def fail(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "ftruncate", "fdatasync"])
def test_file_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    file = OsDisk().open(str(tmp_path / "f"))
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=r"f'$") as failed:
        {"write": lambda: file.append(b"x"), "ftruncate": lambda: file.truncate(0), "fdatasync": file.flush}[
            call
        ]()
    assert failed.value.filename == str(tmp_path / "f")
    monkeypatch.undo()
    file.close()


def test_lock_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = DirectoryLock(str(tmp_path))
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match=r"lock'$"):
        lock.enter("me")
    lock.release()


def test_directory_that_cannot_be_formatted_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_server_config(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/d\nlisteners=PLAINTEXT://:1,C://:2\n"
        "controller.listener.names=C\ncontroller.quorum.voters=1@localhost:2\n"
    )
    monkeypatch.setattr(os, "mkdir", lambda path: (_ for _ in ()).throw(refusal(Path(path))))
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(
        ConfigError, match=f"cannot format {tmp_path}/d: Permission denied: {tmp_path} belongs to"
    ):
        format_directories(OsDisk(), config, "AAAAAAAAAAAAAAAAAAAAAA", BOOTSTRAP_FEATURES, lambda: b"", 0)  # type: ignore[arg-type,return-value]


def test_command_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "mkdir", lambda path, mode: (_ for _ in ()).throw(refusal(Path(path))))
    ended = CliRunner().invoke(cli, ["dev", "--detach"])
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"Error: {tmp_path}/pykraft/dev") and ended.stderr.count("\n") == 1


def test_error_that_is_a_bug_is_none_of_the_users() -> None:
    assert is_users(refusal(Path("/x"))) and is_users(FULL)
    assert not is_users(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert not is_users(BrokenPipeError(errno.EPIPE, "broken"))
