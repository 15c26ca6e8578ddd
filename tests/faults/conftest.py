"""What several tests of fault runs need from their machine."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.surroundings.loop_disk import LoopDisk, why_unavailable
from pykraft.testing.processes.commands import CommandError


@pytest.fixture
def loop_disks(tmp_path: Path) -> None:
    """Skip if loop devices do not work: containers often have the commands but not the permission."""
    reason = why_unavailable()
    if reason is None:
        disk = LoopDisk(tmp_path / "probe.img", tmp_path / "probe")
        try:
            disk.make()
            disk.unmount()
        except CommandError as error:
            reason = str(error)
    if reason is not None:
        pytest.skip(f"nodes cannot have file systems of their own here: {reason}")
