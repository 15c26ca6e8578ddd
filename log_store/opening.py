"""From a directory to the parts of a log: listed, recovered, with epochs and offsets that fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pykraft.kafka_protocol.records import HEADER_BYTES, BatchHeader
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.epoch_cache import LeaderEpochCache
from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.interface import DAMAGE_ERRORS, CorruptLogError, LogConfig, RecoveryReport
from pykraft.log_store.reader import Extent, segment_index, walk
from pykraft.log_store.recovery import check_continuity, check_reaches, list_segments, recover
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES
from pykraft.log_store.segment.segment import MAX_SEGMENT_BYTES, Segment
from pykraft.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class LogParts:
    """The parts of a :class:`Log`. ``is_durable``: even its files' names are.

    From ``whole_from`` on, segments follow each other without a gap.
    """

    segments: tuple[Segment, ...]
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    compacted_offset: int
    whole_from: int
    report: RecoveryReport
    is_durable: bool
    is_cut_unflushed: bool


def open_parts(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    recovery_point: int,
    log_start_offset: int | None,
    compacted_offset: int,
    clean: bool,
    on_batch: Callable[[BatchHeader], None] | None,
    flush: bool,
) -> LogParts:
    """See :meth:`Log.open`. If the log ends below its start, it must start over there."""
    if not disk.is_dir(directory):
        disk.make_dirs(directory)
    segments = list_segments(
        disk, directory, created_ms=now_ms, index_interval_bytes=config.index_interval_bytes
    )
    _check_start(directory, segments, log_start_offset, recovery_point)
    start_offset = log_start_offset or 0
    epochs = LeaderEpochCache.load(disk, directory)
    report = RecoveryReport()
    is_durable = clean and bool(segments)
    is_recovered = not clean and bool(segments)
    if not segments:
        segments = [create_segment(disk, directory, start_offset, config, now_ms)]
        end_offset = recovery_point = start_offset
    elif clean:
        for segment in segments[:-1]:
            segment.is_durable = True
        check_continuity(segments, start_offset, compacted_offset)
        _, end_offset = segments[-1].load(after_clean_stop=True)
        check_reaches(segments[-1], end_offset, recovery_point)
        recovery_point = end_offset
    else:
        end_offset, report = recover(
            disk,
            directory,
            segments,
            recovery_point,
            epochs,
            on_batch,
            log_start_offset=start_offset,
            compacted_offset=compacted_offset,
        )
        if flush:
            segments[-1].file.flush()
    start_offset = max(start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    # Gaps are not judged here: compaction may have left them, and a voter cuts its log before one.
    extent = Extent(lambda: end_offset, lambda offset: True)
    if not _epochs_fit(segments, epochs, start_offset, end_offset, extent):
        _rebuild_epochs(segments, epochs, start_offset, end_offset, extent)
        report = replace(report, rebuilt=(*report.rebuilt, epochs.path))
    if config.preallocate:
        segments[-1].room_bytes = 0
    for segment in segments[:-1]:
        segment.close()  # there may be many segments, and few are read
    return LogParts(
        segments=tuple(segments),
        epochs=epochs,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        recovery_point=min(recovery_point, end_offset),
        compacted_offset=compacted_offset,
        whole_from=_whole_from(segments, start_offset),
        report=report,
        is_durable=is_durable,
        is_cut_unflushed=is_recovered and not flush,
    )


def _whole_from(segments: Sequence[Segment], start_offset: int) -> int:
    """The base offset of the oldest segment from which on none is missing. Below the log start, where
    retention was interrupted, a power loss may have restored any of them.
    """
    index = segment_index([segment.base_offset for segment in segments], start_offset)
    while index > 0:
        try:
            end_offset = repairing_indexes(segments[index - 1].read_end_offset)
        except DAMAGE_ERRORS:
            break
        if end_offset != segments[index].base_offset:
            break
        index -= 1
    return segments[index].base_offset


def _check_start(
    directory: str, segments: Sequence[Segment], log_start_offset: int | None, recovery_point: int
) -> None:
    """:class:`CorruptLogError` if the oldest segments are missing and retention did not delete them."""
    if not segments:
        if recovery_point > (log_start_offset or 0):
            raise CorruptLogError(
                directory, 0, f"no segment is left of what was stored up to {recovery_point}"
            )
    elif log_start_offset is not None and segments[0].base_offset > log_start_offset:
        raise CorruptLogError(
            segments[0].path,
            0,
            f"the log begins at offset {segments[0].base_offset}, its start is {log_start_offset}",
        )


def _epochs_fit(
    segments: Sequence[Segment],
    epochs: LeaderEpochCache,
    start_offset: int,
    end_offset: int,
    extent: Extent,
) -> bool:
    """Whether the starts of all epochs from ``start_offset`` on, and both ends of the log, match the batches.

    The start may lie below the oldest entry: a power loss can undo its move, and not that of the entries.
    """
    starts = {entry.start_offset for entry in epochs.entries}
    base_offsets = [segment.base_offset for segment in segments]
    for offset in sorted({*starts, *(start - 1 for start in starts), end_offset - 1}):
        if start_offset <= offset < end_offset:
            for _, _, header in walk(segments, base_offsets, offset, end_offset, HEADER_BYTES, extent):
                first = max(offset, header.base_offset)  # compaction may have removed the offset itself
                if header.partition_leader_epoch != epochs.epoch_for_offset(first):
                    return False
                break
    return True


def _rebuild_epochs(
    segments: Sequence[Segment],
    epochs: LeaderEpochCache,
    start_offset: int,
    end_offset: int,
    extent: Extent,
) -> None:
    """From all batch headers: epochs without records leave no entry."""
    epochs.clear()
    base_offsets = [segment.base_offset for segment in segments]
    for _, _, header in walk(segments, base_offsets, start_offset, end_offset, SCAN_READ_AHEAD_BYTES, extent):
        epochs.assign(header.partition_leader_epoch, header.base_offset)
    epochs.truncate_from_start(start_offset)


def create_segment(disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
    """A new, empty newest segment. Its name is not durable until the directory is flushed."""
    assert config.most_segment_bytes <= MAX_SEGMENT_BYTES, "positions are 32-bit"
    segment = Segment(
        disk, directory, base_offset, created_ms=now_ms, index_interval_bytes=config.index_interval_bytes
    )
    segment.create()
    segment.room_bytes = 0 if config.preallocate else None
    return segment
