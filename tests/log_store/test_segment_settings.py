"""Settings of segments: segment.jitter.ms, internal.segment.bytes and preallocate."""

import os
from pathlib import Path

import pytest

from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment import segment
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store.places import Fill, MakeBatch, MemoryPlace
from tests.log_store.spy import SpyDisk


def age_when_rolled(log: Log, make_batch: MakeBatch, limit_ms: int) -> int:
    """The age of the oldest record at which the newest segment is closed."""
    first = log.segment_base_offsets[-1]
    start_ms = 1_000_000 * (first + 1)
    for age_ms in range(limit_ms + 2):
        batch = make_batch(log.log_end_offset, times=(start_ms + age_ms,))
        log.append(batch.data, [batch.header], now_ms=0)
        if log.segment_base_offsets[-1] != first:
            return age_ms
    raise AssertionError("never rolled")


def test_segments_are_closed_earlier_by_jitters_of_their_own(make_batch: MakeBatch) -> None:
    disk = MemoryDisk()

    def ages(segment_ms: int, jitter_ms: int) -> list[int]:
        config = LogConfig(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
        logs = [Log.open(disk, f"t{jitter_ms}-{index}", config, now_ms=0) for index in range(60)]
        return [age_when_rolled(log, make_batch, segment_ms) for log in logs]

    found = ages(100, 30)
    assert all(100 - 30 < age - 1 <= 100 for age in found)
    assert len(set(found)) > 10, "not all at once"
    assert set(ages(5, 1000)) == {2, 3, 4, 5, 6}, "never at once, however large the jitter"
    assert set(ages(50, 0)) == {51}


def test_jitter_of_a_segment_is_the_same_after_a_restart(memory: MemoryPlace, make_batch: MakeBatch) -> None:
    config = LogConfig(segment_ms=100, segment_jitter_ms=100)
    age_ms = age_when_rolled(memory.open(config), make_batch, 100)
    disk = MemoryDisk()
    disk.make_dirs("/data")
    again = MemoryPlace(disk, "/data")
    log = again.open(config)
    batch = make_batch(0, times=(1_000_000,))
    log.append(batch.data, [batch.header], now_ms=0)
    log.close()
    log = again.open(config, clean=True)
    for at_ms, is_rolled in ((age_ms - 1, False), (age_ms, True)):
        batch = make_batch(log.log_end_offset, times=(1_000_000 + at_ms,))
        log.append(batch.data, [batch.header], now_ms=0)
        assert (log.segment_base_offsets[-1] > 0) == is_rolled


def test_internal_segment_size_takes_the_place_of_the_other(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(LogConfig(internal_segment_bytes=500))
    fill(log, 11)
    assert log.segment_base_offsets == (0, 5, 10)


def test_room_is_reserved_in_steps_and_given_back(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "PREALLOCATED_BYTES", 1 << 20)
    disk = SpyDisk(OsDisk())
    config = LogConfig(segment_bytes=1 << 23, preallocate=True)
    log = Log.open(disk, str(tmp_path / "t-0"), config, now_ms=0)
    path = tmp_path / "t-0" / f"{0:020}.log"
    for _ in range(5):
        fill(log, 1, value_bytes=300_000)
    assert path.stat().st_size == log.size_bytes, "the length is that of the records"
    reservations = [call for call in disk.calls if call.operation == "preallocate"]
    assert len(reservations) == 2
    reserved = path.stat().st_blocks * 512
    log.roll(0)
    if reserved > log.size_bytes + (1 << 19):  # the file system can reserve
        assert path.stat().st_blocks * 512 < log.size_bytes + (1 << 16)
    fill(log, 1)
    log.close()
    newest = tmp_path / "t-0" / f"{5:020}.log"
    assert os.stat(newest).st_blocks * 512 < 1 << 16
    log = Log.open(disk, str(tmp_path / "t-0"), config, now_ms=0, clean=True)
    assert log.log_end_offset == 6
    fill(log, 1)
    assert [call.path for call in disk.calls if call.operation == "preallocate"][-1] == str(newest)
    log.close()


def test_nothing_is_reserved_unless_the_topic_asks_for_it(tmp_path: Path, fill: Fill) -> None:
    disk = SpyDisk(OsDisk())
    log = Log.open(disk, str(tmp_path / "t-0"), LogConfig(), now_ms=0)
    fill(log, 3)
    log.close()
    assert not [call for call in disk.calls if call.operation == "preallocate"]
