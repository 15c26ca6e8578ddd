"""ListOffsets for one partition: both ends of its log and look-ups by time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import TimestampOffset
from pykraft.log_store.log.log import Log

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An answer to ListOffsets; -1 where unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


UNKNOWN = FoundOffset(-1, -1, -1)


LookUp = Callable[[Log, int | None], Awaitable[TimestampOffset | None]]
"""Finds the first record not earlier than a time, or (None) the first with the largest."""


async def find_offset(
    partition: Partition, timestamp: int, look_up: LookUp, *, is_replica: bool, reads_committed: bool = False
) -> FoundOffset:
    """The offset for a sentinel (earliest, latest, …), or of the first record at or after a time.

    For a consumer that ``reads_committed`` transactions only, the last stable offset is the end.
    OFFSET_NOT_AVAILABLE while a new leader's high watermark is below what its predecessor may have shown.
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return FoundOffset(-1, start, log.epoch_cache.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return UNKNOWN
    if not is_replica and partition.high_watermark < partition.leader_epoch_start:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} has not found its high watermark yet")
    end = log.log_end_offset if is_replica else partition.high_watermark
    if reads_committed and not is_replica:
        end = partition.last_stable_offset
    if timestamp == LATEST:
        return FoundOffset(-1, end, partition.leader_epoch)
    found = await look_up(log, None if timestamp == MAX_TIMESTAMP else timestamp)
    return UNKNOWN if found is None or found.offset >= end else FoundOffset(*found)
