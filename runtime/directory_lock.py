"""One process per data directory: a lock on ``.lock``, which the operating system drops with the process.

The file also proves which processes held the directory before. It holds a secret of each holder, so that no
other process can give the proof: only its owner may read the file. Its first line names the boot of this
kernel and the file itself (device and inode), the others the holders since. If boot and file are those of the
file that is locked now, the holders named there locked *this* file on *this* kernel: if one of them were
still alive, the lock could not have been taken. A copied directory is another file, and another machine (or
this one after a reboot) is another boot: there the names prove nothing and are dropped. They are also dropped
on a system without a boot id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

LOCK_FILE: Final = ".lock"
MAX_HOLDERS: Final = 16
_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
_MAX_FILE_BYTES: Final = 4096


class DirectoryInUseError(OSError):
    """Another process holds the directory."""


class DirectoryLock:
    """Holds a directory until :meth:`release` or the end of the process."""

    def __init__(self, directory: str, boot_id_file: str = _BOOT_ID_FILE) -> None:
        """Take the lock. :class:`DirectoryInUseError` if another process has it."""
        self._boot_id_file = boot_id_file
        self._path = f"{directory}/{LOCK_FILE}"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise DirectoryInUseError(f"{directory} is in use by another process") from None
        with contextlib.suppress(PermissionError):  # another user's file, which we may be allowed to write
            os.fchmod(self._fd, 0o600)

    def enter(self, holder: str) -> tuple[str, ...]:
        """Write a new holder (one word); returns the latest ones before it, which are all dead."""
        place = self._place()
        if place is None:
            return ()
        first, *holders = os.pread(self._fd, _MAX_FILE_BYTES, 0).decode("ascii", "replace").split("\n")
        before = tuple(word for word in holders if word) if first == place else ()
        kept = before[-(MAX_HOLDERS - 1) :]
        text = "\n".join([place, *kept, holder, ""]).encode("ascii")
        try:
            os.pwrite(self._fd, text, 0)  # before the old names are gone: there may be no room, or no time
            os.ftruncate(self._fd, len(text))
        except OSError as error:
            error.filename = self._path
            raise
        return kept

    def _place(self) -> str | None:
        """The identity of this file on this boot of this kernel."""
        try:
            with open(self._boot_id_file, encoding="ascii") as file:
                boot_id = file.read().strip()
        except (OSError, UnicodeDecodeError):
            return None
        stat = os.fstat(self._fd)
        return f"{boot_id} {stat.st_dev} {stat.st_ino}" if boot_id else None

    def release(self) -> None:
        """Release the directory for the next process."""
        os.close(self._fd)
