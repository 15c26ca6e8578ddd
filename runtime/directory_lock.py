"""One process a data directory: a lock on ``.lock``, which the operating system drops with the process."""

from __future__ import annotations

import fcntl
import os

LOCK_FILE = ".lock"


class DirectoryInUseError(OSError):
    """Another process holds the directory."""


class DirectoryLock:
    """Holds a directory until :meth:`release` or the end of the process."""

    def __init__(self, directory: str) -> None:
        """Take the lock. :class:`DirectoryInUseError` if somebody else has it."""
        self._fd = os.open(f"{directory}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise DirectoryInUseError(f"{directory} is in use by another process") from None

    def release(self) -> None:
        """Let the next process have the directory."""
        os.close(self._fd)
