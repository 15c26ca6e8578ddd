"""Finding records by time (ListOffsets). Opens the records of one batch at most.

The time index leads to the first batch that can hold the record; the record in it is found by decoding,
because a batch header knows only the largest timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.interface import TimestampOffset
from pykraft.log_store.scan import iter_headers
from pykraft.log_store.segment import Segment


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int
) -> TimestampOffset | None:
    """The first record, by offset, that is not earlier than ``timestamp_ms``."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp_ms:
            continue
        found = segment.find(max(segment.find_time(timestamp_ms), log_start_offset))
        if found is None:
            continue
        for position, header in iter_headers(segment.file, found[0], segment.size_bytes):
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                continue
            record = _first_record(segment, position, header, timestamp_ms, log_start_offset)
            if record is not None:
                return record
    return None


def latest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp of the log (KIP-734)."""
    newest = max(segments, key=lambda segment: segment.max_timestamp[0])
    timestamp_ms, _ = newest.max_timestamp
    return first_at_or_after([newest], timestamp_ms, log_start_offset) if timestamp_ms >= 0 else None


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, log_start_offset: int
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    if header.is_log_append_time:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, log_start_offset), epoch)
    batch = segment.file.pread(position, header.size_bytes)
    for record in decode_batch(batch, header):
        if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, epoch)
    return None
