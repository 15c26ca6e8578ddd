"""What a flush covers, in which order, and what it does not touch."""

import errno
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.os_disk import OsDisk
from tests.log_store.places import Fill, MemoryPlace, Place, Stored
from tests.log_store.spy import SpyDisk

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def _names(spy: SpyDisk) -> list[str]:
    return [f"{call.operation} {call.path.rpartition('/')[2]}" for call in spy.calls]


@pytest.fixture
def spy(place: Place) -> SpyDisk:
    return SpyDisk(place.disk)


@pytest.fixture
def spied(place: Place, spy: SpyDisk) -> Iterator[Log]:
    log = Log.open(spy, f"{place.root}/orders-3", SMALL, now_ms=0)
    yield log
    log.abandon()


def test_flush_covers_epochs_data_and_the_directory_entry(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 3)
    assert spied.recovery_point == 0
    spy.calls.clear()
    spied.flush()
    assert _names(spy) == [
        "write_atomic leader-epoch-checkpoint",
        "flush 00000000000000000000.log",
        "flush_dir orders-3",
    ]
    assert spied.recovery_point == 3


def test_second_flush_costs_one_file_flush(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 1)
    spied.flush()
    fill(spied, 1)
    spy.calls.clear()
    spied.flush()
    assert _names(spy) == ["flush 00000000000000000000.log"]


def test_sealed_segment_is_flushed_once_with_its_indexes(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 7)
    spy.calls.clear()
    spied.flush()
    assert _names(spy) == [
        "write_atomic leader-epoch-checkpoint",
        "flush 00000000000000000000.log",
        "flush 00000000000000000000.index",
        "flush 00000000000000000000.timeindex",
        "flush 00000000000000000005.log",
        "flush_dir orders-3",
    ]
    fill(spied, 1)
    spy.calls.clear()
    spied.flush()
    assert _names(spy) == ["flush 00000000000000000005.log"]


def test_flush_up_to_a_durable_offset_does_nothing(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 3)
    spied.flush()
    fill(spied, 1)
    spy.calls.clear()
    spied.flush(3)
    assert _names(spy) == [] and spied.recovery_point == 3
    spied.flush(4)
    assert spied.recovery_point == 4


def test_append_flushes_nothing(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    spy.calls.clear()
    fill(spied, 4)
    assert _names(spy) == ["append 00000000000000000000.log"] * 4


def test_new_epoch_does_not_flush_on_append(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 1, epoch=1)
    spied.flush()
    spy.calls.clear()
    fill(spied, 1, epoch=2)
    assert _names(spy) == ["append 00000000000000000000.log"]
    spied.flush()
    assert _names(spy)[1:] == ["write_atomic leader-epoch-checkpoint", "flush 00000000000000000000.log"]


def test_job_covers_the_log_as_of_its_preparation(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(SMALL)
    fill(log, 3)
    job = log.prepare_flush()
    fill(log, 10)
    job.run()
    assert log.recovery_point == 0
    assert log.complete_flush(job) == log.recovery_point == job.end_offset == 3
    log.flush()
    assert log.recovery_point == 13


def test_indexes_of_a_segment_sealed_during_a_flush_are_flushed_by_the_next(
    spy: SpyDisk, spied: Log, fill: Fill
) -> None:
    fill(spied, 5)
    job = spied.prepare_flush()
    fill(spied, 1)
    job.run()
    spied.complete_flush(job)
    spy.calls.clear()
    spied.flush()
    assert _names(spy) == [
        "flush 00000000000000000000.log",
        "flush 00000000000000000000.index",
        "flush 00000000000000000000.timeindex",
        "flush 00000000000000000005.log",
        "flush_dir orders-3",
    ]


def test_flush_during_a_truncation_moves_no_recovery_point(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(SMALL)
    fill(log, 9)
    job = log.prepare_flush()
    log.truncate_to(2)
    fill(log, 9, epoch=2)
    job.run()
    assert log.complete_flush(job) == 0
    log.flush()
    assert log.recovery_point == 11


def test_flush_of_a_log_that_is_deleted_meanwhile_is_no_fault(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 9)
    job = log.prepare_flush()
    log.delete()
    job.run()


def test_failed_flush_moves_no_recovery_point_and_stays_failed(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open()
    fill(log, 3)
    memory.disk.inject("flush", errno.EIO, path_part=".log")
    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            log.flush()
    assert log.recovery_point == 0


def test_full_disk_fails_the_append_and_the_torn_batch_is_truncated_at_restart(
    memory: MemoryPlace, fill: Fill
) -> None:
    log = memory.open()
    batches = fill(log, 3)
    memory.disk.inject("append", errno.ENOSPC)
    with pytest.raises(OSError, match="injected"):
        fill(log, 1)
    assert log.log_end_offset == 3
    log.abandon()
    log = memory.open()
    assert [data for _, data in log.iter_batches(0)] == [batch.data for batch in batches]
    assert log.recovery_report.truncations[0].lost_bytes == len(batches[0].data) // 2


def test_close_makes_everything_durable(memory: MemoryPlace, fill: Fill, stored: Stored) -> None:
    log = memory.open(SMALL)
    batches = fill(log, 20)
    log.close()
    memory.disk.crash(random.Random(1))
    log = memory.open(SMALL, clean=True)
    assert stored(log) == [batch.data for batch in batches]
    assert log.latest_epoch == 1


def test_close_also_flushes_the_indexes(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 3)
    spied.flush()
    spy.calls.clear()
    spied.close()
    assert [name for name in _names(spy) if name.startswith("flush")] == [
        "flush 00000000000000000000.index",
        "flush 00000000000000000000.timeindex",
        "flush 00000000000000000000.log",
        "flush_dir orders-3",
    ]


def test_close_of_a_durable_log_flushes_nothing(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 1)
    spied.flush()
    spy.calls.clear()
    spied.close()
    assert not [name for name in _names(spy) if name.startswith(("flush", "write_atomic"))]


def test_truncation_that_removes_segments_flushes_the_directory(spy: SpyDisk, spied: Log, fill: Fill) -> None:
    fill(spied, 20)
    spied.flush()
    spy.calls.clear()
    spied.truncate_to(7)
    names = _names(spy)
    removals = [name for name in names if name.startswith("remove ")]
    assert removals[0] == "remove 00000000000000000015.log"
    assert names.index("flush_dir orders-3") > names.index("remove 00000000000000000010.log")
    assert names.index("flush_dir orders-3") < names.index("truncate 00000000000000000005.log")


def test_threads_may_flush_while_the_log_grows(tmp_path: Path, fill: Fill) -> None:
    log = Log.open(OsDisk(), f"{tmp_path}/orders-3", SMALL, now_ms=0)
    points = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(40):
            flushing = pool.submit(log.flush)
            batches = fill(log, 7)
            flushing.result()
            points.append(log.recovery_point)
    assert points == sorted(points) and len(batches) == 7
    log.flush()
    assert log.recovery_point == 280
    log.abandon()
    again = Log.open(OsDisk(), f"{tmp_path}/orders-3", SMALL, now_ms=0, recovery_point=280)
    assert again.log_end_offset == 280
