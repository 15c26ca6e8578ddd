"""What retention deletes from the front of a log, and what it must keep."""

from dataclasses import dataclass

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.retention import deletable_segments
from tests.log_store.places import Fill, MakeBatch, Place


@dataclass(frozen=True)
class Stub:
    size_bytes: int
    time_ms: int
    created_ms: int = 0

    @property
    def max_timestamp(self) -> tuple[int, int]:
        return self.time_ms, 0


def _count(
    config: LogConfig,
    *segments: Stub,
    now_ms: int = 0,
    log_start_offset: int = 0,
    limit_offset: int = 1 << 40,
) -> int:
    """Segments of ten offsets each."""
    ends = [10 * (index + 1) for index in range(len(segments))]
    return deletable_segments(
        segments, ends, config, now_ms=now_ms, log_start_offset=log_start_offset, limit_offset=limit_offset
    )


KEEP = LogConfig(retention_ms=-1)


def test_oldest_segments_past_the_retention_time_are_deleted() -> None:
    config = LogConfig(retention_ms=100)
    segments = [Stub(1, 10), Stub(1, 50), Stub(1, 100)]
    assert [_count(config, *segments, now_ms=now) for now in (110, 111, 150, 151, 201)] == [0, 1, 1, 2, 3]


def test_old_segment_after_a_young_one_stays() -> None:
    assert _count(LogConfig(retention_ms=100), Stub(1, 500), Stub(1, 1), Stub(1, 1), now_ms=550) == 0


def test_segment_without_timestamps_ages_from_when_it_was_found() -> None:
    segments = [Stub(1, -1, created_ms=300), Stub(1, 500)]
    assert [_count(LogConfig(retention_ms=100), *segments, now_ms=now) for now in (400, 401)] == [0, 1]


def test_segments_that_exceed_the_size_are_deleted_and_no_more() -> None:
    segments = [Stub(100, 0), Stub(100, 0), Stub(100, 0)]
    sizes = (299, 201, 200, 100, 99, 0)
    limits = [_count(LogConfig(retention_ms=-1, retention_bytes=size), *segments) for size in sizes]
    assert limits == [0, 0, 1, 2, 2, 3]


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0)
    segments = [Stub(1, 1), Stub(1, 1), Stub(1, 1)]
    limits = [_count(config, *segments, now_ms=9, limit_offset=limit) for limit in (9, 10, 29, 30)]
    assert limits == [0, 1, 2, 3]


def test_segments_below_the_log_start_are_deleted_under_any_policy_except_the_newest() -> None:
    config = LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact"}))
    segments = [Stub(1, 1), Stub(1, 1), Stub(1, 1)]
    starts = (9, 10, 20, 30)
    assert [_count(config, *segments, now_ms=9, log_start_offset=start) for start in starts] == [0, 1, 2, 2]


def test_compacted_log_is_not_deleted_by_age_or_size() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    assert _count(config, Stub(1, 1), Stub(1, 1), now_ms=9) == 0


def test_log_without_a_cleanup_policy_is_deleted_below_its_start_only() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset())
    assert _count(config, Stub(1, 1), Stub(1, 1), now_ms=9) == 0
    assert _count(config, Stub(1, 1), Stub(1, 1), now_ms=9, log_start_offset=10) == 1


def test_empty_newest_segment_stays() -> None:
    assert _count(LogConfig(retention_ms=0, retention_bytes=0), Stub(1, 1), Stub(0, -1), now_ms=9) == 1


def test_deleted_segments_move_the_log_start_and_readers_can_continue(
    place: Place, make_batch: MakeBatch
) -> None:
    config = LogConfig(segment_bytes=500, retention_ms=50, index_interval_bytes=100)
    log = place.open(config)
    for offset in range(20):
        batch = make_batch(offset, times=(offset,), epoch=offset // 4)
        log.append(batch.data, [batch.header], now_ms=0)
    held = log.read(1, 10)
    assert held is not None
    assert log.delete_old_segments(60) == 2
    assert (log.log_start_offset, log.segment_base_offsets) == (10, (10, 15))
    assert log.end_offset_for_epoch(2).end_offset == 12
    assert log.epoch_cache.entries[0].start_offset == 10
    assert held.file.pread(held.position, held.size_bytes) == make_batch(1, times=(1,), epoch=0).data
    with pytest.raises(KafkaError):
        log.read(9, 10)
    assert place.disk.list(place.path(""))[0] == f"{10:020d}.index"
    log.close()
    log = place.open(config, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (10, 20)
    assert log.epoch_cache.epoch_for_offset(10) == 2


def test_expired_log_is_emptied_and_keeps_its_end(place: Place, fill: Fill) -> None:
    config = LogConfig(segment_bytes=500, retention_ms=50)
    log = place.open(config)
    fill(log, 12)
    assert log.delete_old_segments(9999, limit_offset=11) == 2
    assert log.delete_old_segments(9999) == 1
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (12, 12, (12,))
    assert log.delete_old_segments(99999) == 0
    assert log.latest_epoch == 1
    fill(log, 1)
    log.close()
    assert place.open(config).log_end_offset == 13


def test_log_start_advances_at_once_and_segments_follow(place: Place, fill: Fill) -> None:
    log = place.open(LogConfig(segment_bytes=500, retention_ms=-1))
    fill(log, 12)
    log.advance_log_start(7)
    log.advance_log_start(6)
    assert log.log_start_offset == 7
    assert log.delete_old_segments(0) == 1
    assert log.segment_base_offsets == (5, 10)
    assert log.log_start_offset == 7
    assert [header.base_offset for header in log.iter_headers(0)] == [7, 8, 9, 10, 11]
    with pytest.raises(KafkaError) as raised:
        log.advance_log_start(13)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
