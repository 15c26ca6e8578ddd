"""Offsets by time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header, set_log_append_time
from pykraft.log_store.interface import LogConfig, TimestampOffset
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store.places import Place

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def _append(log: Log, *times: int, append_time_ms: int | None = None, epoch: int = 1) -> None:
    inputs = [RecordInput(None, b"value", (), time_ms) for time_ms in times]
    data = bytearray(
        encode_batch(inputs, base_offset=log.log_end_offset, leader_epoch=epoch, compression=Compression.LZ4)
    )
    if append_time_ms is not None:
        set_log_append_time(data, 0, append_time_ms)
    log.append(data, [read_header(data)], now_ms=0)


def test_empty_log_has_no_record_at_any_time(place: Place) -> None:
    log = place.open()
    assert log.lookup_timestamp(0) is None
    assert log.max_timestamp() is None


def test_the_record_itself_is_found_inside_a_compressed_batch(place: Place) -> None:
    log = place.open()
    _append(log, 10, 20, 30)
    _append(log, 40, 50, epoch=3)
    assert log.lookup_timestamp(0) == TimestampOffset(10, 0, 1)
    assert log.lookup_timestamp(20) == TimestampOffset(20, 1, 1)
    assert log.lookup_timestamp(21) == TimestampOffset(30, 2, 1)
    assert log.lookup_timestamp(45) == TimestampOffset(50, 4, 3)
    assert log.lookup_timestamp(51) is None
    assert log.max_timestamp() == TimestampOffset(50, 4, 3)


def test_records_beyond_the_end_offset_are_not_found(place: Place) -> None:
    log = place.open()
    _append(log, 10)
    _append(log, 20)
    assert log.lookup_timestamp(15, end_offset=2) == TimestampOffset(20, 1, 1)
    assert log.lookup_timestamp(15, end_offset=1) is None


def test_records_below_the_log_start_are_not_found(place: Place) -> None:
    log = place.open()
    _append(log, 50, 20, 30)
    _append(log, 40)
    log.advance_log_start(1)
    assert log.lookup_timestamp(0) == TimestampOffset(20, 1, 1)
    assert log.lookup_timestamp(35) == TimestampOffset(40, 3, 1)


def test_append_time_counts_for_the_whole_batch(place: Place) -> None:
    log = place.open()
    _append(log, 10, 20, append_time_ms=1000)
    _append(log, 5, 6, append_time_ms=2000)
    assert log.lookup_timestamp(15) == TimestampOffset(1000, 0, 1)
    assert log.lookup_timestamp(1001) == TimestampOffset(2000, 2, 1)
    assert log.max_timestamp() == TimestampOffset(2000, 2, 1)


def test_latest_time_may_be_in_an_old_segment(place: Place) -> None:
    log = place.open(SMALL)
    for time_ms in [1, 2, 9, 3, 4, 5, 6, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1]:
        _append(log, time_ms)
    assert len(log.segment_base_offsets) > 2
    assert log.max_timestamp() == TimestampOffset(9, 2, 1)


def test_records_without_a_time_are_never_found(place: Place) -> None:
    log = place.open()
    _append(log, -1, -1)
    assert log.lookup_timestamp(0) is None
    assert log.max_timestamp() is None


@pytest.mark.parametrize("reopen", ["no", "clean", "unclean"])
@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40),
    segment_bytes=st.integers(150, 2000),
    interval=st.integers(1, 400),
)
def test_first_record_not_earlier_is_found(
    reopen: str, batches: list[list[int]], segment_bytes: int, interval: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    disk = MemoryDisk()
    log = Log.open(disk, "/t-0", config, now_ms=0)
    for times in batches:
        _append(log, *times)
    if reopen != "no":
        log.close()
        log = Log.open(disk, "/t-0", config, now_ms=0, clean=reopen == "clean")
    records = [(offset, time_ms) for offset, time_ms in enumerate(t for times in batches for t in times)]
    for time_ms in range(0, 62, 3):
        expected = next((record for record in records if record[1] >= time_ms), None)
        found = log.lookup_timestamp(time_ms)
        assert (None if found is None else (found.offset, found.timestamp_ms)) == expected
    latest = max(time_ms for _, time_ms in records)
    newest = log.max_timestamp()
    assert newest is not None and newest.timestamp_ms == latest
    assert records[newest.offset][1] == latest


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=20),
    start=st.integers(0, 79),
    append_times=st.booleans(),
)
@example([[9, 5, 6], [2]], 1, False)
@example([[9, 5], [8]], 1, False)
@example([[9]], 1, False)
def test_records_below_the_log_start_have_no_latest_time(
    batches: list[list[int]], start: int, append_times: bool
) -> None:
    log = Log.open(MemoryDisk(), "/t-0", LogConfig(segment_bytes=400, index_interval_bytes=100), now_ms=0)
    times: list[int] = []
    for batch in batches:
        append_time_ms = max(batch) if append_times else None
        _append(log, *batch, append_time_ms=append_time_ms)
        times += batch if append_time_ms is None else [append_time_ms] * len(batch)
    start = min(start, log.log_end_offset)
    log.advance_log_start(start)
    newest = log.max_timestamp()
    if start == log.log_end_offset:
        assert newest is None
    else:
        assert newest is not None and newest.offset >= start
        assert newest.timestamp_ms == max(times[start:]) == times[newest.offset]


def test_lost_time_index_does_not_lose_the_latest_time(place: Place) -> None:
    log = place.open(LogConfig(index_interval_bytes=100))
    for time_ms in [1, 9, *range(2, 8), *range(2, 8)]:
        _append(log, time_ms)
    log.close()
    assert len(place.disk.read(place.path(f"{0:020d}.index"))) > 16
    place.disk.write_atomic(place.path(f"{0:020d}.timeindex"), b"")
    log = place.open(LogConfig(index_interval_bytes=100), recovery_point=14)
    assert log.max_timestamp() == TimestampOffset(9, 1, 1)
    assert log.lookup_timestamp(8) == TimestampOffset(9, 1, 1)


@pytest.mark.parametrize("timestamp_ms", [1_010, None], ids=["a time", "the latest"])
def test_look_up_that_meets_a_wrong_index_reports_it_and_is_right_when_it_is_built_again(
    place: Place, timestamp_ms: int | None
) -> None:
    log = place.open(LogConfig(index_interval_bytes=0))
    for number in range(20):
        _append(log, 1_000 + number)
    log.roll(0)
    path = place.path(f"{0:020d}.timeindex")
    for segment in log._segments:
        segment.close()
    place.disk.write_atomic(path, bytes(len(place.disk.read(path))))
    reported: list[BadIndexError] = []
    log.on_bad_index = reported.append

    def find() -> TimestampOffset | None:
        return log.prepare_lookup(timestamp_ms).run()

    with pytest.raises(BadIndexError):
        find()
    (error,) = reported
    build = log.prepare_index_build(error.segment)
    assert build is not None
    build.run()
    assert log.complete_index_build(build)
    assert find() == (
        TimestampOffset(1_019, 19, 1) if timestamp_ms is None else TimestampOffset(1_010, 10, 1)
    )
    assert reported == [error]
