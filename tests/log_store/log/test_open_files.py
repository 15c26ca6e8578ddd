"""Logs under a small limit of open files: old segments close their files and can still be read."""

import os
from pathlib import Path

import pytest

from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import LogConfig, LogSlice
from pykraft.log_store.log.log import Log
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.os_disk import OsDisk

NOW_MS = 1_700_000_000_000
VALUE = bytes(1000)
CONFIG = LogConfig(segment_bytes=5000, index_interval_bytes=1)


def append(log: Log, count: int) -> None:
    for _ in range(count):
        batch = encode_batch(
            [RecordInput(None, VALUE, (), NOW_MS + log.log_end_offset)], base_offset=log.log_end_offset
        )
        log.append(batch, (read_header(batch),), now_ms=NOW_MS)


def read(slice_: LogSlice | None) -> bytes:
    assert slice_ is not None
    return slice_.file.pread(slice_.position, slice_.size_bytes)


def descriptors_below(path: Path) -> int:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.readlink(link).startswith(str(path)) for link in links)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_log_of_many_segments_keeps_few_files_open(tmp_path: Path, is_flushed: bool) -> None:
    budget = FileBudget(52)  # 32 in reserve
    log = Log.open(OsDisk(budget), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS)
    most = 0
    for _ in range(200):
        append(log, 1)
        if is_flushed and log.log_end_offset % 10 == 0:
            log.flush()
        most = max(most, budget.files)
    assert len(log.segment_base_offsets) == 50
    for offset in (0, 7, 120, 3, 199):
        assert read_header(read(log.read(offset, 5000))).base_offset == offset
        found = log.lookup_timestamp(NOW_MS + offset)
        assert found is not None and found.offset == offset
        most = max(most, budget.files)
    assert log.size_bytes > 200_000
    most = max(most, budget.files)
    assert most <= 20 + 1  # the growing segment's file stays
    assert descriptors_below(tmp_path) == budget.files
    log.close()
    assert budget.files == 0


def test_segments_read_at_start_also_give_up_their_files(tmp_path: Path) -> None:
    log = Log.open(OsDisk(), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS)
    append(log, 200)
    log.close()
    for clean in (True, False):
        budget = FileBudget(52)
        log = Log.open(OsDisk(budget), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS, clean=clean)
        assert sum(1 for _ in log.iter_headers(0)) == 200
        assert log.size_bytes > 200_000
        assert budget.files <= 20 + 1
        log.close()


def test_reader_keeps_its_slice_after_the_segment_gave_up_its_file(tmp_path: Path) -> None:
    budget = FileBudget(52)
    log = Log.open(OsDisk(budget), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS)
    append(log, 100)
    log.flush()
    handed = log.read(0, 5000)
    for offset in range(99, 10, -1):
        read(log.read(offset, 5000))
    log.config = LogConfig(segment_bytes=5000, retention_bytes=10_000)
    assert log.delete_old_segments(NOW_MS) > 10
    assert read_header(read(handed)).base_offset == 0
    log.close()


def test_truncation_into_a_segment_without_a_file_makes_it_grow_again(tmp_path: Path) -> None:
    budget = FileBudget(52)
    log = Log.open(OsDisk(budget), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS)
    append(log, 200)
    log.flush()
    assert log.truncate_to(17)
    append(log, 100)
    log.flush()
    for offset in (0, 16, 17, 116):
        assert read_header(read(log.read(offset, 5000))).base_offset == offset
    assert budget.files <= 20 + 1
    log.close()


def test_logs_that_are_only_written_to_keep_one_file_each(tmp_path: Path) -> None:
    budget = FileBudget(62)
    disk = OsDisk(budget)
    config = LogConfig(index_interval_bytes=1)
    logs = [Log.open(disk, str(tmp_path / f"t-{n}"), config, now_ms=NOW_MS) for n in range(25)]
    for _ in range(70):  # more index entries than are kept in memory
        for log in logs:
            append(log, 1)
            assert budget.files <= 30 + 1
    for log in logs:
        assert read_header(read(log.read(65, 5000))).base_offset == 65
        log.close()
    again = Log.open(disk, str(tmp_path / "t-3"), config, now_ms=NOW_MS, clean=True)
    assert again.log_end_offset == 70
    again.close()


def test_flush_skips_segments_that_retention_removed_meanwhile(tmp_path: Path) -> None:
    budget = FileBudget(52)
    log = Log.open(OsDisk(budget), str(tmp_path / "t-0"), CONFIG, now_ms=NOW_MS)
    append(log, 200)
    job = log.prepare_flush()
    assert sum(isinstance(file, str) for _, file in job.files) > 50
    log.config = LogConfig(segment_bytes=5000, retention_bytes=10_000)
    assert log.delete_old_segments(NOW_MS) > 10
    job.run()
    assert log.complete_flush(job) == 200
    assert budget.files <= 20 + 1
    log.close()
