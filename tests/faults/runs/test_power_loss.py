"""No acknowledged metadata change is lost in a power loss. Needs root and loop devices."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.runs.power_loss import run
from pykraft.jepsen_like.faults.surroundings.loop_disk import LoopDisk

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop_disks")]


def test_unflushed_data_is_lost_after_a_power_loss(tmp_path: Path) -> None:
    """The disk under test really loses unflushed data: otherwise the tests below prove nothing."""
    disk = LoopDisk(tmp_path / "disk.img", tmp_path / "mount")
    disk.make()
    try:
        path = disk.mount_point / "file"
        with path.open("wb", buffering=0) as file:
            file.write(b"lost")
            disk.cut_power()
            with pytest.raises(OSError):
                file.write(b"refused")
        disk.unmount()
        disk.mount()
        assert not path.exists()
    finally:
        disk.unmount()


def test_one_node_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    result = run(tmp_path, nodes=1, rounds=2, seed=1, all_at_once=True)
    assert result.acknowledged > 0 and result.power_cuts == 2
    assert result.lost == ()


def test_a_cluster_that_loses_power_as_a_whole_loses_nothing(tmp_path: Path) -> None:
    result = run(tmp_path, nodes=3, rounds=1, seed=2, all_at_once=True)
    assert result.acknowledged > 0 and result.power_cuts == 3
    assert result.lost == ()
