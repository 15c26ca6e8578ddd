"""A marker that has rotted on the disk costs its log, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.markers import COMMIT, Marker, build_marker
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.index_build import IndexBuild
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.log_managers import CONFIG, KEY, create, fill, started
from tests.log_store.cleaned_logs import clean

MARKER = Marker(COMMIT, 3)
CHECKED_FROM = 17
"""Where the bytes of a batch begin that tell whether it is whole: its checksum, and what that covers."""


def append_marker(log: Log) -> int:
    """Append a control batch; returns its position."""
    position, data = log._active.size_bytes, bytearray(build_marker(7, 0, MARKER, 0))
    assign_offset(data, 0, log.log_end_offset, 3)
    log.append(data, [read_header(data)], now_ms=0)
    return position


def markers(log: Log) -> list[Marker]:
    return [marker for _, marker in log.iter_produced(0) if marker is not None]


async def stopped_in_order(disk: MemoryDisk) -> tuple[str, int]:
    """A log of three batches and a marker; its segment, and where the marker is."""
    logs = await started(disk)
    opened = await create(logs, 3)
    position = append_marker(opened.log)
    fill(opened.log, 2)
    await logs.stop(1, {KEY: 6})
    return f"/d/t-0/{0:020}.log", position


def test_marker_with_a_wrong_byte_is_damage_and_no_other_marker() -> None:
    for byte in range(CHECKED_FROM, len(build_marker(7, 0, MARKER, 0))):
        disk = MemoryDisk()
        log = Log.open(disk, "/t-0", CONFIG, now_ms=0)
        fill(log, 2)
        position = append_marker(log)
        assert markers(log) == [MARKER]
        disk.flip_bit("/t-0/" + f"{0:020}.log", position + byte)
        with pytest.raises(CorruptLogError):
            markers(log)


async def test_start_sets_aside_a_log_with_a_rotten_marker() -> None:
    disk = MemoryDisk()
    path, position = await stopped_in_order(disk)
    for name in disk.list("/d/t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"/d/t-0/{name}")
    disk.flip_bit(path, position + 68)
    logs = await started(disk)
    assert not logs.logs and "checksum" in logs.offline[KEY].reason
    assert "t-0.00000000-damaged" in disk.list("/d")


def compact(log: Log) -> None:
    log.roll(0)
    fill(log, 1)
    log.config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    clean(log)


def build_indexes(log: Log) -> None:
    log._active.aborted.is_bad = True
    IndexBuild(log._active, 0).run()


@pytest.mark.parametrize("work", [compact, build_indexes])
def test_work_that_needs_a_rotten_marker_finds_damage(work: Callable[[Log], None]) -> None:
    disk = MemoryDisk()
    log = Log.open(disk, "/t-0", CONFIG, now_ms=0)
    fill(log, 2)
    position = append_marker(log)
    disk.flip_bit("/t-0/" + f"{0:020}.log", position + 68)
    with pytest.raises(CorruptLogError, match="checksum"):
        work(log)
