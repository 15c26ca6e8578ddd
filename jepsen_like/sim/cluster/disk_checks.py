"""What must hold of the files on a disk after a crash, at whatever point of the writes it came."""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.broker.logs.log_loading import load_dir
from pykraft.broker.logs.offline_logs import find_set_aside
from pykraft.jepsen_like.sim.cluster.image_invariants import InvariantViolation
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.memory import MemoryDisk


def check_disk_opens(disk: MemoryDisk, log_dirs: Iterable[str], now_ms: int) -> None:
    """Every partition's log opens again, as a start of the node would open it; the disk is left as it is.

    Not for a disk on which damage was planted: that log is set aside, as it should be.
    """
    twin = disk.copy()
    for log_dir in log_dirs:
        before = {offline.directory for offline in find_set_aside(twin, log_dir).values()}
        loaded = load_dir(twin, log_dir, LogConfig(), now_ms)
        for (topic, index), offline in loaded.offline.items():
            if offline.directory is not None and offline.directory not in before:
                detail = f"{topic}-{index} in {log_dir}: {offline.reason}"
                raise InvariantViolation("every_log_opens_after_a_crash", detail)
        for opened in loaded.logs:
            opened.log.abandon()
