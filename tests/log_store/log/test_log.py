"""Appending, reading, rolling, truncating: what a log guarantees while nothing fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import CorruptLogError, EpochEnd, LogConfig, LogSlice
from pykraft.log_store.log.log import Log
from pykraft.runtime.disk import DiskFile
from tests.log_store.places import Fill, MakeBatch, MemoryPlace, Place, Stored
from tests.log_store.spy import SpyDisk
from tests.narrowing import present

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
COMPACT = frozenset({"delete", "compact"})


def _bytes(found: LogSlice | None) -> bytes:
    assert found is not None
    return found.file.pread(found.position, found.size_bytes)


def test_new_log_is_empty_at_its_start_offset(place: Place) -> None:
    log = place.open(log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (42, 42, 42)
    assert log.read(42, 100) is None
    assert log.latest_epoch == -1
    assert log.topic_partition == ("orders", 3)
    assert list(log.iter_batches(0)) == []


def test_every_offset_is_found_before_and_after_reopening(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(SMALL)
    batches = []
    for number in range(60):
        batch = make_batch(log.log_end_offset, records=number % 4 + 1, value_bytes=number)
        log.append(batch.data, [batch.header], now_ms=0)
        batches.append(batch)
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log = place.open(SMALL, clean=clean)
        assert log.log_end_offset == batches[-1].header.next_offset
        for batch in batches:
            for offset in range(batch.header.base_offset, batch.header.next_offset):
                found = log.read(offset, 1)
                assert found is not None and found.base_offset == batch.header.base_offset
                assert _bytes(found) == batch.data
        assert [data for _, data in log.iter_batches(0)] == [batch.data for batch in batches]
        assert list(log.iter_headers(0)) == [batch.header for batch in batches]


def test_one_append_is_one_write_however_many_batches_it_holds(
    memory: MemoryPlace, make_batch: MakeBatch
) -> None:
    spy = SpyDisk(memory.disk)
    log = Log.open(spy, "/data/orders-3", LogConfig(), now_ms=0)
    batches = [make_batch(offset) for offset in range(5)]
    spy.calls.clear()
    log.append(b"".join(batch.data for batch in batches), [batch.header for batch in batches], now_ms=0)
    assert [call.operation for call in spy.calls] == ["append"]
    assert log.log_end_offset == 5


def test_append_below_the_log_end_is_a_bug(memory: MemoryPlace, fill: Fill, make_batch: MakeBatch) -> None:
    log = memory.open()
    fill(log, 3)
    with pytest.raises(AssertionError, match="log end is 3"):
        log.append(make_batch(2).data, [make_batch(2).header], now_ms=0)


def test_slices_are_bounded_by_bytes_and_by_end_offset(place: Place, fill: Fill) -> None:
    log = place.open()
    batches = fill(log, 10)
    size = len(batches[0].data)
    assert _bytes(log.read(4, 10_000)) == b"".join(batch.data for batch in batches[4:])
    assert _bytes(log.read(4, 10_000, end_offset=7)) == b"".join(batch.data for batch in batches[4:7])
    assert _bytes(log.read(4, 10_000, end_offset=99)) == b"".join(batch.data for batch in batches[4:])
    assert _bytes(log.read(4, size + 10)) == batches[4].data + batches[5].data[:10]
    assert _bytes(log.read(4, 10)) == batches[4].data
    assert _bytes(log.read(4, 10, at_least_one=False)) == batches[4].data[:10]
    assert log.read(4, 0, at_least_one=False) is None
    assert log.read(7, 100, end_offset=7) is None
    assert log.read(8, 100, end_offset=7) is None
    assert log.read(10, 100) is None


def test_end_offset_inside_a_batch_excludes_it(place: Place, make_batch: MakeBatch) -> None:
    log = place.open()
    for batch in (make_batch(0, records=3), make_batch(3, records=3)):
        log.append(batch.data, [batch.header], now_ms=0)
    assert log.read(0, 1000, end_offset=2) is None
    found = log.read(1, 1000, end_offset=5)
    assert found is not None and found.base_offset == 0
    assert _bytes(found) == make_batch(0, records=3).data


def test_offsets_outside_of_the_log_are_refused(place: Place, fill: Fill) -> None:
    log = place.open(log_start_offset=5)
    fill(log, 3)
    for offset in (4, 9, -1):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, 100)
        assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_slices_do_not_cross_segments_and_successive_reads_do(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    batches = fill(log, 30)
    assert len(log.segment_base_offsets) > 4
    position, read = 0, b""
    while (found := log.read(position, 1 << 20)) is not None:
        assert found.position == 0
        read += _bytes(found)
        position += found.size_bytes // len(batches[0].data)
    assert read == b"".join(batch.data for batch in batches)


def test_gap_that_compaction_cannot_have_left_is_damage(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(SMALL)
    for offset in (0, 1, 5, 6):
        batch = make_batch(offset)
        log.append(batch.data, [batch.header], now_ms=0)
    for offset in (0, 1, 5, 6):
        assert present(log.read(offset, 1)).base_offset == offset
    for offset in (2, 4):
        with pytest.raises(CorruptLogError, match=f"offset {offset} is missing, the next batch has offset 5"):
            log.read(offset, 1)


def test_gaps_in_offsets_are_skipped(place: Place, make_batch: MakeBatch) -> None:
    config = LogConfig(segment_bytes=250, index_interval_bytes=50, cleanup_policy=COMPACT)
    log = place.open(config)
    offsets = [0, 7, 8, 30, 31, 32, 100]
    for offset in offsets:
        batch = make_batch(offset)
        log.append(batch.data, [batch.header], now_ms=0)
    for clean in (None, True):
        if clean:
            log.close()
            log = place.open(config, clean=True)
        for offset in range(101):
            found = log.read(offset, 1)
            assert found is not None
            assert found.base_offset == min(candidate for candidate in offsets if candidate >= offset)
        assert log.log_end_offset == 101


def test_segment_rolls_by_size_but_never_splits_an_append(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(LogConfig(segment_bytes=500))
    batches = [make_batch(offset, value_bytes=100) for offset in range(8)]
    log.append(batches[0].data, [batches[0].header], now_ms=0)
    rest = batches[1:]
    log.append(b"".join(batch.data for batch in rest), [batch.header for batch in rest], now_ms=0)
    assert log.segment_base_offsets == (0, 1)
    assert log.size_bytes == sum(len(batch.data) for batch in batches)


def test_segment_rolls_by_the_age_of_its_records(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(LogConfig(segment_ms=100))
    for offset, time_ms in enumerate([1000, 1100, 1101, 1150, 1202]):
        batch = make_batch(offset, times=(time_ms,))
        log.append(batch.data, [batch.header], now_ms=0)
    assert log.segment_base_offsets == (0, 2, 4)


def test_segment_without_timestamps_rolls_by_the_clock(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(LogConfig(segment_ms=100), now_ms=1000)
    for offset, now_ms in enumerate([1000, 1100, 1101]):
        batch = make_batch(offset, times=(-1,))
        log.append(batch.data, [batch.header], now_ms=now_ms)
    assert log.segment_base_offsets == (0, 2)


def test_segment_rolls_when_its_index_is_full(place: Place, fill: Fill) -> None:
    log = place.open(LogConfig(index_bytes=48, index_interval_bytes=1))
    fill(log, 15)
    assert log.segment_base_offsets == (0, 7, 14)


def test_segment_rolls_where_relative_offsets_would_overflow(place: Place, make_batch: MakeBatch) -> None:
    log = place.open(LogConfig(index_interval_bytes=1, cleanup_policy=COMPACT))
    far = (1 << 31) + 5
    for offset in (0, 1, 1 << 31, far, far + (1 << 32)):
        batch = make_batch(offset)
        log.append(batch.data, [batch.header], now_ms=0)
    # each is named by the log end except the last: its relative offset would not fit from there
    assert log.segment_base_offsets == (0, 2, (1 << 31) + 1, far + (1 << 32))
    for offset in (0, 1, 2, 1 << 31, far, far + 1, far + (1 << 32)):
        found = log.read(offset, 1)
        assert found is not None and found.base_offset >= offset


def test_changed_settings_apply_from_the_next_append(place: Place, fill: Fill) -> None:
    log = place.open()
    fill(log, 10)
    log.config = SMALL
    fill(log, 1)
    assert log.segment_base_offsets == (0, 10)
    assert log.config is SMALL


def test_reads_at_the_end_of_the_previous_slice_do_not_search(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(LogConfig(index_interval_bytes=1 << 20))
    fill(log, 400)
    followed = log.read(300, 1 << 20)  # a follower at the end
    assert followed is not None
    fill(log, 10)
    with counted_reads(followed.file) as reads:
        found = log.read(400, 1 << 20)  # where the follower's slice ended
        assert found is not None and found.base_offset == 400
        bounded = log.read(400, 1 << 20, end_offset=410)
        assert bounded == found
    assert reads == [27, 27]


def test_reads_of_one_batch_after_the_other_search_once(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(LogConfig(index_interval_bytes=1 << 20))
    fill(log, 100)
    first = log.read(40, 1)
    assert first is not None
    with counted_reads(first.file) as reads:
        for offset in range(41, 60):
            found = log.read(offset, 1)
            assert found is not None and found.base_offset == offset
    assert reads == [27] * 19


@contextmanager
def counted_reads(file: DiskFile) -> Iterator[list[int]]:
    """The lengths of the positioned reads of such files."""
    reads: list[int] = []
    original = type(file).pread

    def counting(self: DiskFile, position: int, length_bytes: int) -> bytes:
        reads.append(length_bytes)
        chunk: bytes = original(self, position, length_bytes)
        return chunk

    with pytest.MonkeyPatch.context() as context:
        context.setattr(type(file), "pread", counting)
        yield reads


def test_epochs_follow_the_batches_and_survive(place: Place, make_batch: MakeBatch) -> None:
    log = place.open()
    for offset, epoch in enumerate([1, 1, 4, 4, 5]):
        batch = make_batch(offset, epoch=epoch)
        log.append(batch.data, [batch.header], now_ms=0)
    log.close()
    for clean in (True, False):
        log = place.open(clean=clean)
        assert log.latest_epoch == 5
        assert log.end_offset_for_epoch(1) == EpochEnd(1, 2)
        assert log.end_offset_for_epoch(3) == EpochEnd(1, 2)
        assert log.end_offset_for_epoch(5) == EpochEnd(5, 5)
        assert log.end_offset_for_epoch(6) == EpochEnd(-1, -1)
        log.close()


def test_one_append_may_bring_several_epochs(place: Place, make_batch: MakeBatch) -> None:
    log = place.open()
    batches = [make_batch(offset, epoch=epoch) for offset, epoch in enumerate([2, 3, 3, 6])]
    log.append(b"".join(batch.data for batch in batches), [batch.header for batch in batches], now_ms=0)
    assert [(e.epoch, e.start_offset) for e in log.epoch_cache.entries] == [(2, 0), (3, 1), (6, 3)]


def test_assigned_epoch_ends_at_the_log_end(place: Place, fill: Fill) -> None:
    log = place.open()
    fill(log, 3, epoch=1)
    log.assign_epoch(2, 3)
    assert log.latest_epoch == 2
    assert log.end_offset_for_epoch(1) == EpochEnd(1, 3)
    assert log.end_offset_for_epoch(2) == EpochEnd(2, 3)


@pytest.mark.parametrize("target", [0, 1, 7, 12, 13, 25, 29])
def test_truncated_log_ends_there_and_grows_again(
    place: Place, fill: Fill, stored: Stored, target: int, make_batch: MakeBatch
) -> None:
    log = place.open(SMALL)
    batches = fill(log, 30)
    log.flush()
    assert log.truncate_to(target)
    assert (log.log_end_offset, log.recovery_point) == (target, target)
    assert stored(log) == [batch.data for batch in batches[:target]]
    assert log.read(target, 100) is None
    more = fill(log, 20, epoch=2, value_bytes=33)
    expected = [batch.data for batch in batches[:target] + more]
    assert stored(log) == expected
    log.close()
    for clean in (True, False):
        log = place.open(SMALL, clean=clean)
        assert stored(log) == expected
        for offset in range(len(expected)):
            assert _bytes(log.read(offset, 1)) == expected[offset]
        log.close()


def test_reads_after_a_truncation_begin_where_the_new_batches_do(place: Place, fill: Fill) -> None:
    """Where earlier reads ended is remembered."""
    log = place.open()
    fill(log, 6)
    for offset in range(6):
        assert log.read(offset, 1) is not None
    assert log.truncate_to(2)
    more = fill(log, 4, epoch=2, value_bytes=33)
    assert [_bytes(log.read(offset, 1)) for offset in range(2, 6)] == [batch.data for batch in more]


def test_truncation_beyond_the_end_does_nothing(place: Place, fill: Fill) -> None:
    log = place.open()
    fill(log, 3)
    assert not log.truncate_to(3)
    assert not log.truncate_to(9)
    assert log.log_end_offset == 3


def test_truncation_inside_a_batch_removes_the_whole_batch(place: Place, make_batch: MakeBatch) -> None:
    log = place.open()
    for batch in (make_batch(0, records=3), make_batch(3, records=3)):
        log.append(batch.data, [batch.header], now_ms=0)
    assert log.truncate_to(4)
    assert log.log_end_offset == 3


def test_truncation_fixes_epochs(place: Place, make_batch: MakeBatch) -> None:
    log = place.open()
    for offset, epoch in enumerate([1, 1, 4, 4, 5]):
        batch = make_batch(offset, epoch=epoch)
        log.append(batch.data, [batch.header], now_ms=0)
    log.truncate_to(3)
    assert log.latest_epoch == 4
    assert log.end_offset_for_epoch(4) == EpochEnd(4, 3)
    log.truncate_to(2)
    assert log.latest_epoch == 1


@pytest.mark.parametrize("target", [5, 500])
def test_log_can_start_over_anywhere(place: Place, fill: Fill, target: int) -> None:
    log = place.open(SMALL, log_start_offset=10)
    fill(log, 30)
    held = log.read(12, 100)
    log.truncate_fully_and_start_at(target)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (target, target, target)
    assert (log.latest_epoch, log.segment_base_offsets) == (-1, (target,))
    assert len(_bytes(held)) > 0
    batches = fill(log, 3, epoch=9)
    log.close()
    log = place.open(SMALL, clean=True, log_start_offset=target)
    assert [data for _, data in log.iter_batches(0)] == [batch.data for batch in batches]


def test_truncation_below_the_first_segment_starts_over(place: Place, fill: Fill) -> None:
    log = place.open(log_start_offset=10)
    fill(log, 5)
    assert log.truncate_to(7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_deleted_log_leaves_no_directory_and_readers_can_continue(place: Place, fill: Fill) -> None:
    log = place.open()
    batches = fill(log, 3)
    held = log.read(1, 10)
    log.delete()
    assert place.disk.list(place.root) == []
    assert _bytes(held) == batches[1].data


def test_headers_are_read_without_the_records(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open()
    fill(log, 10, value_bytes=100_000)
    file = present(log.read(0, 1)).file
    original = type(file).pread
    total = 0

    def counting(self: DiskFile, position: int, length_bytes: int) -> bytes:
        nonlocal total
        chunk: bytes = original(self, position, length_bytes)
        total += len(chunk)
        return chunk

    with pytest.MonkeyPatch.context() as context:
        context.setattr(type(file), "pread", counting)
        headers = list(log.iter_headers(0, read_ahead_bytes=61))
    assert [header.base_offset for header in headers] == list(range(10))
    assert total <= 10 * 61 + 4096


def test_iteration_starts_at_the_batch_that_holds_the_offset_and_respects_the_end(
    place: Place, make_batch: MakeBatch
) -> None:
    log = place.open(SMALL)
    for offset in range(0, 30, 3):
        batch = make_batch(offset, records=3)
        log.append(batch.data, [batch.header], now_ms=0)
    assert [header.base_offset for header in log.iter_headers(7, 20)] == [6, 9, 12, 15]
    assert [read_header(data) for _, data in log.iter_batches(7, 21)] == list(log.iter_headers(7, 21))


def test_damage_found_by_a_read_names_file_and_position(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open()
    batches = fill(log, 3)
    position = len(batches[0].data)
    memory.disk.flip_bit(memory.path("00000000000000000000.log"), position + 8, 7)
    with pytest.raises(CorruptLogError, match=rf"00000\.log is corrupt at position {position}: batch length"):
        log.read(2, 100)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 120), st.integers(0, 3)), min_size=1, max_size=40
    ),
    segment_bytes=st.integers(200, 3000),
    interval=st.integers(1, 600),
    data=st.data(),
)
def test_any_read_gives_the_stored_bytes(
    make_batch: MakeBatch,
    sizes: list[tuple[int, int, int]],
    segment_bytes: int,
    interval: int,
    data: st.DataObject,
) -> None:
    from pykraft.runtime.simulated.memory_disk import MemoryDisk

    disk = MemoryDisk()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, cleanup_policy=COMPACT)
    log = Log.open(disk, "/t-0", config, now_ms=0)
    batches = []
    for records, value_bytes, gap in sizes:
        batch = make_batch(log.log_end_offset + gap, records=records, value_bytes=value_bytes)
        log.append(batch.data, [batch.header], now_ms=0)
        batches.append(batch)
    for _ in range(20):
        offset = data.draw(st.integers(0, log.log_end_offset))
        end = data.draw(st.integers(0, log.log_end_offset + 2))
        max_bytes = data.draw(st.integers(0, 2000))
        wanted = [b for b in batches if b.header.last_offset >= offset and b.header.next_offset <= end]
        found = log.read(offset, max_bytes, end_offset=end)
        if not wanted:
            assert found is None
            continue
        assert found is not None and found.base_offset == wanted[0].header.base_offset
        got = _bytes(found)
        everything = b"".join(batch.data for batch in wanted)
        assert everything.startswith(got) and len(got) >= len(wanted[0].data)
        assert len(got) <= max(max_bytes, len(wanted[0].data))
