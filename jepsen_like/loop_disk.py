"""A file system of its own for one node, whose power can be cut: what was not flushed is gone.

An ext4 image on a loop device. ``cut_power`` is ext4's own shutdown without a flush of the journal (the ioctl
that file system tests use): from then on every write and fsync fails with EIO, and after the next mount only
what had been flushed is there. Needs root and loop devices (Linux); :func:`why_unavailable` says what is
missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

_EXT4_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2
_IMAGE_BYTES = 256 << 20
_COMMAND_TIMEOUT_S = 30


class LoopDiskError(RuntimeError):
    """A command on the image failed; the message holds what it said."""


def why_unavailable() -> str | None:
    """What keeps loop disks from working here; None if nothing is known to."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices"
    return None


class LoopDisk:
    """``image`` is made if it is not there; ``mount_point`` is a directory."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self._image = image
        self.mount_point = mount_point
        self._mounted = False

    def make(self) -> None:
        """Make the image and its empty file system, and mount it."""
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount_point.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mount_point))
        self._mounted = True

    def cut_power(self) -> None:
        """Nothing written from now on arrives, nor what was written and not flushed."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Whoever uses the file system must have ended."""
        if self._mounted:
            _run("umount", str(self.mount_point))
            self._mounted = False


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    if result.returncode != 0:
        raise LoopDiskError(f"`{' '.join(command)}`: {(result.stdout + result.stderr).strip()}")
