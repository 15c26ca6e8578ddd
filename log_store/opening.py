"""From a directory to the parts of a log: listed, recovered, with epochs and offsets that fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.epoch_cache import LeaderEpochCache
from pykraft.log_store.interface import LogConfig, RecoveryReport
from pykraft.log_store.recovery import list_segments, recover
from pykraft.log_store.segment import MAX_SEGMENT_BYTES, Segment
from pykraft.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class LogParts:
    """What :class:`Log` is made of. ``is_durable``: even the names of the files are."""

    segments: tuple[Segment, ...]
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport
    is_durable: bool


def open_parts(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    on_batch: Callable[[BatchHeader], None] | None,
) -> LogParts:
    """See :meth:`Log.open`. The log may come out ending below its start: then it must start over there."""
    if not disk.is_dir(directory):
        disk.make_dirs(directory)
    segments = list_segments(
        disk, directory, created_ms=now_ms, index_interval_bytes=config.index_interval_bytes
    )
    epochs = LeaderEpochCache.load(disk, directory)
    report = RecoveryReport()
    is_durable = clean and bool(segments)
    if not segments:
        segments = [create_segment(disk, directory, log_start_offset, config, now_ms)]
        end_offset = recovery_point = log_start_offset
    elif clean:
        for segment in segments[:-1]:
            segment.is_durable = True
        _, end_offset = segments[-1].load(after_clean_stop=True)
        recovery_point = end_offset
    else:
        end_offset, report = recover(disk, directory, segments, recovery_point, epochs, on_batch)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    return LogParts(
        segments=tuple(segments),
        epochs=epochs,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        recovery_point=min(recovery_point, end_offset),
        report=report,
        is_durable=is_durable,
    )


def create_segment(disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
    """A new, empty newest segment. Its name is not durable until the directory is flushed."""
    assert config.segment_bytes <= MAX_SEGMENT_BYTES, "positions are 32-bit"
    segment = Segment(
        disk, directory, base_offset, created_ms=now_ms, index_interval_bytes=config.index_interval_bytes
    )
    segment.create()
    return segment
