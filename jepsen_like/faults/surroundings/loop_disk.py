"""A file system of its own for one node, whose power can be cut: what was not flushed is gone.

An ext4 image on a loop device. ``cut_power`` is ext4's own shutdown without a flush of the journal (the ioctl
that file system tests use): from then on every write and fsync fails with EIO, and after the next mount only
what had been flushed is there. Needs root and loop devices (Linux); :func:`why_unavailable` says what is
missing.
"""

import errno
import fcntl
import os
import struct
import subprocess
import threading
from pathlib import Path
from typing import Final

from pykraft.testing.processes.commands import CommandError, missing_commands, run_command

_EXT4_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL: Final = 2
_IMAGE_BYTES: Final = 256 << 20
_FILLER: Final = "filler"
_MOUNT_PREFIX: Final = "mount-"
_SMALLEST_PIECE_BYTES: Final = 4096
_THAW_TIMEOUT_S: Final = 30.0


def why_unavailable() -> str | None:
    """Return the reason why loop disks cannot work here, if one is known."""
    if os.geteuid() != 0:
        return "not root"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices"
    return missing_commands("mkfs.ext4", "mount", "umount", "fsfreeze")


def mount_point(directory: Path, node_id: int) -> Path:
    """Where a run with this directory has the file system of a node."""
    return directory / f"{_MOUNT_PREFIX}{node_id}"


def mount_points() -> list[Path]:
    """Those of all loop disks in this mount namespace, no matter who made them.

    A file system is only gone, and lost what was not flushed, when it is mounted in no namespace any more.
    """
    mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    return [
        Path(at.replace("\\040", " "))
        for device, at, *_ in mounts
        if device.startswith("/dev/loop") and Path(at).name.startswith(_MOUNT_PREFIX)
    ]


class LoopDisk:
    """``image`` is made if it is not there; ``mount_point`` is a directory. Methods raise
    :class:`~pykraft.testing.processes.commands.CommandError` if a command on it fails."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point
        self._mounted = False
        self._freezer: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def make(self) -> None:
        """Make the image and its empty file system, and mount it."""
        with self.image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        run_command("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount_point.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self) -> None:
        run_command("mount", "-o", "loop", str(self.image), str(self.mount_point))
        self._mounted = True
        self.free()  # a loss of power may have undone that

    def unmount(self) -> None:
        """All users of the file system must have ended."""
        self.thaw()
        if self._mounted:
            run_command("umount", str(self.mount_point))
            self._mounted = False

    def cut_power(self) -> None:
        """Nothing written from now on arrives, nor what was written and not flushed."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
        finally:
            os.close(descriptor)

    def turn_read_only(self) -> None:
        """As after an error of the disk: what is written and not flushed is lost, every write fails with
        EROFS, reads go on. Ends with the next mount."""
        run_command("mount", "-o", "remount,abort", str(self.mount_point))

    def fill(self) -> None:
        """Leave no space, not even what is reserved for root, until :meth:`free`."""
        descriptor = os.open(self.mount_point / _FILLER, os.O_CREAT | os.O_WRONLY)
        try:
            piece_bytes, end = _IMAGE_BYTES, 0
            while piece_bytes >= _SMALLEST_PIECE_BYTES:
                try:
                    os.posix_fallocate(descriptor, end, piece_bytes)
                    end += piece_bytes
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece_bytes //= 2
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Take away what :meth:`fill` has made."""
        (self.mount_point / _FILLER).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let writers wait, beyond even a kill, until :meth:`thaw` or any end of this process."""
        self._freezer = subprocess.Popen(
            ["sh", "-c", FREEZE_WHILE_ASKED, "freezer", str(self.mount_point)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._freezer.stdout is not None
        said = self._freezer.stdout.readline()
        if said != _FROZEN:
            self.thaw()
            raise CommandError(f"`fsfreeze -f {self.mount_point}`: {said.decode().strip()}")

    def thaw(self) -> None:
        """May be called twice, and from several threads."""
        with self._lock:
            if self._freezer is not None:
                self._freezer.communicate(timeout=_THAW_TIMEOUT_S)
                self._freezer = None


_FROZEN: Final = b"frozen\n"
FREEZE_WHILE_ASKED: Final = """
trap '' PIPE
fsfreeze -f "$1" && { echo frozen; read -r _; fsfreeze -u "$1"; }
"""
"""Thaws when its standard input ends: it is closed, or the runner is gone, perhaps before it was told."""
