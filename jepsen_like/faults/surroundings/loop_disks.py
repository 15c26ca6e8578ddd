"""Nodes on loopback, each with its data on a file system of its own."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from pykraft.jepsen_like.faults.surroundings.loop_disk import LoopDisk, mount_point
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings
from pykraft.testing.processes.listeners import Listeners


class LoopDisks(Surroundings):
    """Tiers register what they make with ``_made``; :meth:`close` removes the newest first, not images."""

    tier: ClassVar[str] = "loop-disks"

    def __init__(self) -> None:
        super().__init__()
        self._made = ExitStack()

    def open(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        disks = {i: LoopDisk(_image(directory, i), mount_point(directory, i)) for i in listeners}
        for disk in disks.values():
            self._made.callback(disk.unmount)
            disk.make()
        self.disks = disks

    def close(self) -> None:
        """Errors of one part do not keep the others from being removed; the last one is raised."""
        self._made.close()

    def data_directory(self, directory: Path, node_id: int) -> Path:
        if node_id not in self.disks:
            return super().data_directory(directory, node_id)
        return self.disks[node_id].mount_point / "data"

    def remove_data(self, directory: Path, node_id: int) -> None:
        super().remove_data(directory, node_id)
        _image(directory, node_id).unlink(missing_ok=True)


def _image(directory: Path, node_id: int) -> Path:
    return directory / f"node-{node_id}.img"
