"""When all faults have ended, none is left, and every log directory is used again."""

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.jepsen_like.simulation.cluster.disk import CrashPointDisk
from pykraft.jepsen_like.simulation.cluster.node import SimNode


@pytest.mark.parametrize(
    ("offline", "may_mend", "ends"),
    [({"/data-2": "EIO"}, True, 1), ({}, True, 0), ({"/data-2": ""}, False, 0)],
)
def test_a_process_without_a_directory_that_works_again_is_ended(
    offline: dict[str, str], may_mend: bool, ends: int
) -> None:
    killed: list[bool] = []
    node = SimpleNamespace(
        alive=True,
        is_broker=True,
        may_mend=may_mend,
        parts=SimpleNamespace(logs=SimpleNamespace(dirs=SimpleNamespace(offline=offline))),
        kill=lambda *, power_loss: killed.append(power_loss),
        disk=SimpleNamespace(repair=lambda: None),
    )
    SimNode.stop_without_directory(cast(Any, node))
    assert killed == [False] * ends


def test_no_fault_comes_after_the_end_of_all_faults() -> None:
    disk = CrashPointDisk(lambda power_loss: None)
    disk.inject("write_atomic", errno.EIO)
    disk.live_on()
    disk.write_atomic("/file", b"whole")
    assert disk.read("/file") == b"whole"
