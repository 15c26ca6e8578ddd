"""Which neighbouring segments are compacted into one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.log_store.indexes.time_index import TIME_ENTRY_BYTES
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.segment.segment import MAX_RELATIVE_OFFSET

MAX_SEGMENTS = 64
"""Of one group: all its files are renamed in one turn of the event loop."""


class SourceSegment(Protocol):
    """The input of the rules. ``end_offset``: where the next segment begins."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


def group_segments(segments: Sequence[SourceSegment], config: LogConfig) -> Iterator[slice]:
    """Neighbours whose sizes, index entries and offsets together fit into one segment, oldest first.

    The sizes are those before the compaction; a later round puts together what has become small.
    """
    start = 0
    while start < len(segments):
        end = start + 1
        size = segments[start].size_bytes
        while end < len(segments) and end - start < MAX_SEGMENTS:
            size += segments[end].size_bytes
            span = segments[end].end_offset - 1 - segments[start].base_offset
            if size > config.most_segment_bytes or span > MAX_RELATIVE_OFFSET:
                break
            if _index_bytes(size, config) > config.index_bytes:
                break
            end += 1
        yield slice(start, end)
        start = end


def _index_bytes(size_bytes: int, config: LogConfig) -> int:
    """The most that a time index of so much log can take; the offset index is smaller."""
    return (size_bytes // max(config.index_interval_bytes, HEADER_BYTES) + 1) * TIME_ENTRY_BYTES
