"""A log's clean part, the part that may be compacted now, and whether that is worth a round.

Pure. A log is clean below the offset that its last round reached. From there on it is dirty, and whole
segments of that may be compacted: those below the active one that are committed, flushed, and older than
``min.compaction.lag.ms``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from pykraft.configuration.topic_keys import FOREVER
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import LogConfig


class SegmentFacts(Protocol):
    """The input of the rules. Timestamps cost a look into the files: they are read only if a lag is set."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp(self) -> tuple[int, int]: ...

    @property
    def first_timestamp_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty part of a log that may be compacted: ``first_dirty_offset`` to ``end_offset`` (exclusive).

    ``clean_bytes``: the segments with clean offsets; one with both kinds counts twice, as in Kafka.
    ``is_overdue``: a record in the dirty part has waited for longer than ``max.compaction.lag.ms``.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.cleanable_bytes / max(1, self.clean_bytes + self.cleanable_bytes)

    def is_due(self, config: LogConfig) -> bool:
        """Whether the log is dirty enough, or overdue."""
        if self.cleanable_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_cleanable(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    limit_offset: int,
    now_ms: int,
) -> Cleanable:
    """The part of a log that may be compacted.

    ``cleaned_offset``: what the last round reached, as stored; None if there was none. ``limit_offset``:
    everything below is committed and flushed.
    """
    first_dirty = log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= log_end_offset:
        first_dirty = cleaned_offset
    bases = [segment.base_offset for segment in segments]
    first = max(0, bisect_right(bases, first_dirty) - 1)
    end = max(first, min(len(segments) - 1, bisect_right(bases, limit_offset) - 1))
    dirty = segments[first:end]
    if config.min_compaction_lag_ms > 0:
        newest_ms = now_ms - config.min_compaction_lag_ms
        old_enough = 0
        while old_enough < len(dirty) and dirty[old_enough].max_timestamp[0] <= newest_ms:
            old_enough += 1
        dirty = dirty[:old_enough]
    return Cleanable(
        first_dirty_offset=first_dirty,
        end_offset=max(first_dirty, bases[first + len(dirty)]),
        clean_bytes=sum(s.size_bytes for s in segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in dirty),
        is_overdue=_is_overdue(dirty, config, now_ms),
    )


def _is_overdue(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == FOREVER:
        return False
    oldest_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < segment.first_timestamp_ms < oldest_ms for segment in dirty)
