"""Which of the oldest segments may be deleted: by time, by size, and because the log start has passed them.

Pure. Whole segments only, always a prefix of the log, never anything at or above the offset limit (the high
watermark). The newest segment may be deleted only if the caller rolls first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykraft.log_store.interface import LogConfig


class RetainedSegment(Protocol):
    """The input of the rules; costly properties are read oldest first and only as far as needed."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp(self) -> tuple[int, int]: ...

    @property
    def created_ms(self) -> int: ...


def deletable_segments(
    segments: Sequence[RetainedSegment],
    end_offsets: Sequence[int],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    limit_offset: int,
) -> int:
    """How many segments, from the oldest on, may be deleted."""
    below_limit = 0
    while below_limit < len(segments) and end_offsets[below_limit] <= limit_offset:
        below_limit += 1
    candidates = segments[:below_limit]
    count = 0
    while count < min(below_limit, len(segments) - 1) and end_offsets[count] <= log_start_offset:
        count += 1
    if "delete" not in config.cleanup_policy:
        return count
    return max(
        count,
        _expired(candidates, config.retention_ms, now_ms),
        _oversized(segments, below_limit, config.retention_bytes),
    )


def _expired(candidates: Sequence[RetainedSegment], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    for index, segment in enumerate(candidates):
        timestamp_ms = segment.max_timestamp[0]
        if timestamp_ms < 0:
            # no record has a timestamp; the age counts from when this process first saw the segment
            timestamp_ms = segment.created_ms
        if not segment.size_bytes or now_ms - timestamp_ms <= retention_ms:
            return index
    return len(candidates)


def _oversized(segments: Sequence[RetainedSegment], below_limit: int, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    while count < below_limit and segments[count].size_bytes and excess >= segments[count].size_bytes:
        excess -= segments[count].size_bytes
        count += 1
    return count
