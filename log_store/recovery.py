"""Opening a log directory: which segments it holds, and what of them to trust after an unclean stop.

Everything below the recovery point was flushed. It is scanned only where an index needs it, but the end of
each of its segments is checked: segments are named by the log end at their creation, so one that does not
reach the next has lost records, unless compaction took them (:func:`check_continuity`). From the
recovery point on every batch is checked (length, magic, CRC, rising offsets and epochs):

* the newest segment is truncated at its first bad batch: a torn write, or what a file system leaves of one;
* an older segment that merely ends too early, or lacks a page that the file system had not yet written, lost
  a tail that was never flushed: it is truncated there and the newer segments are dropped;
* a log that ends before the recovery point lost what was flushed: damage;
* a bad batch with data behind it that a torn write cannot explain, in any segment, is damage:
  :class:`CorruptLogError` with file and position. Nothing is truncated, so that an operator can decide.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from pykraft.kafka_protocol.records import CONTROL_BIT, BatchHeader
from pykraft.log_store.compaction.segment_files import finish_replacements
from pykraft.log_store.epoch_cache import LeaderEpochCache
from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.interface import CorruptLogError, RecoveryReport, Truncation
from pykraft.log_store.scan import CheckedScan
from pykraft.log_store.segment.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from pykraft.log_store.segment.segment import Segment
from pykraft.runtime.disk import Disk

_NAME = re.compile(r"(\d{20})(\.\w+)(\.deleted|\.rebuilt)?")


def list_segments(disk: Disk, directory: str, *, created_ms: int, index_interval_bytes: int) -> list[Segment]:
    """The segments of a directory by base offset.

    A replacement of segments that a crash interrupted is finished or undone. Index files without a segment
    are removed, files that were to be removed after a delay, and indexes whose building was interrupted.
    """
    base_offsets = []
    indexes = []
    for name in finish_replacements(disk, directory, disk.list(directory)):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        if match[3] is not None:
            disk.remove(f"{directory}/{name}")
            continue
        if match[2] == LOG_SUFFIX:
            base_offsets.append(int(match[1]))
        elif match[2] in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            indexes.append((int(match[1]), name))
    known = frozenset(base_offsets)
    for base_offset, name in indexes:
        if base_offset not in known:
            disk.remove(f"{directory}/{name}")
    return [
        Segment(
            disk, directory, base_offset, created_ms=created_ms, index_interval_bytes=index_interval_bytes
        )
        for base_offset in base_offsets
    ]


def check_continuity(segments: Sequence[Segment], log_start_offset: int, compacted_offset: int) -> None:
    """:class:`CorruptLogError` if a segment does not end where the next one begins.

    Below ``log_start_offset`` nothing is read, and a power loss may restore any part of what was deleted
    there. Gaps that end at ``compacted_offset`` or below come from compaction.
    """
    for segment, following in pairwise(segments):
        if following.base_offset <= log_start_offset:
            continue
        end_offset = repairing_indexes(segment.read_end_offset)
        check_follows(segment, end_offset, following, compacted_offset)


def check_follows(segment: Segment, end_offset: int, following: Segment, compacted_offset: int) -> None:
    """As :func:`check_continuity`, for one segment that ends at ``end_offset``."""
    base_offset = following.base_offset
    if end_offset > base_offset or max(end_offset, compacted_offset) < base_offset:
        raise CorruptLogError(
            segment.path,
            segment.size_bytes,
            f"it ends at offset {end_offset}, the next segment begins at {base_offset}",
        )


def check_reaches(segment: Segment, end_offset: int, recovery_point: int) -> None:
    """:class:`CorruptLogError` if a log that ends here, at ``end_offset``, once was flushed further."""
    if end_offset < recovery_point:
        raise CorruptLogError(
            segment.path,
            segment.size_bytes,
            f"the log ends at offset {end_offset}, it was stored up to {recovery_point}",
        )


def recover(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    recovery_point: int,
    epochs: LeaderEpochCache,
    on_batch: Callable[[BatchHeader], None] | None,
    *,
    log_start_offset: int = 0,
    compacted_offset: int = 0,
) -> tuple[int, RecoveryReport]:
    """Check everything from the recovery point on: (log end offset, report).

    Shortens ``segments`` in place; the last one is left ready to grow. ``on_batch`` sees each header that
    was checked, in offset order. The caller flushes the newest segment: a truncation made here, or not
    flushed before the process died, must not be undone by a later power loss.
    """
    # The segment that ends at the recovery point is checked too: its index files may be unflushed.
    first = max(0, bisect_left([segment.base_offset for segment in segments], recovery_point) - 1)
    for segment in segments[:first]:
        segment.is_durable = True
    check_continuity(segments[: first + 1], log_start_offset, compacted_offset)
    epochs.truncate_from_end(recovery_point)
    run = _Recovery(
        recovery_point, epochs, on_batch, segments[first].base_offset, max(log_start_offset, compacted_offset)
    )
    for index in range(first, len(segments)):
        segment = segments[index]
        is_newest = index == len(segments) - 1
        if index > first and not run.continues_with(segments[index - 1], segment):
            return run.drop_from(disk, directory, segments, index)
        if run.check(segment, is_newest) and not is_newest:
            return run.drop_from(disk, directory, segments, index + 1)
        if not is_newest:
            segment.seal()
    return run.finish(segments)


class _Recovery:
    """The progress of one run of :func:`recover`."""

    def __init__(
        self,
        recovery_point: int,
        epochs: LeaderEpochCache,
        on_batch: Callable[[BatchHeader], None] | None,
        end_offset: int,
        compacted_offset: int,
    ) -> None:
        self.recovery_point = recovery_point
        self.epochs = epochs
        self.on_batch = on_batch
        self.end_offset = end_offset
        self.unindexed_from: int | None = None
        self.compacted_offset = compacted_offset
        self.epoch = -1
        self.batches = 0
        self.truncations: list[Truncation] = []
        self.removed: list[str] = []

    def continues_with(self, last: Segment, segment: Segment) -> bool:
        """Whether a segment continues the one before.

        Above the recovery point a gap means a lost tail, unless compaction left it (Kafka stores its recovery
        point long after a round has left gaps). Below it check_follows decides whether it is damage.
        """
        base_offset = segment.base_offset
        if self.recovery_point <= self.end_offset <= base_offset > self.compacted_offset:
            return base_offset == self.end_offset
        check_follows(last, self.end_offset, segment, self.compacted_offset)
        return True

    def check(self, segment: Segment, is_newest: bool) -> bool:
        """Scan one segment and leave it loaded; whether it had to be truncated."""
        if not segment.aborted.recover(self.recovery_point):
            self.note_unindexed(segment.base_offset)
        position, self.end_offset = segment.load(self.recovery_point)
        scan = CheckedScan(segment.file, position, self.end_offset, self.epoch)
        for position, header in scan:
            segment.note_batch(position, header)
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self.batches += 1
            if header.attributes & CONTROL_BIT:
                self.note_unindexed(header.base_offset)
            if self.on_batch is not None:
                self.on_batch(header)
        self.end_offset, self.epoch = scan.next_offset, scan.epoch
        bad = scan.bad
        if bad is None:
            return False
        if self.end_offset < self.recovery_point:
            raise CorruptLogError(segment.path, bad.position, bad.reason)
        if not bad.is_torn and not scan.has_unwritten_page():
            if not is_newest:
                raise CorruptLogError(segment.path, bad.position, bad.reason)
            if scan.is_followed_by_intact_batch():
                raise CorruptLogError(segment.path, bad.position, f"{bad.reason}, and good batches follow")
        lost_bytes = segment.size_bytes - bad.position
        self.truncations.append(Truncation(segment.path, bad.position, lost_bytes, bad.reason))
        segment.truncate(bad.position)
        return True

    def note_unindexed(self, offset: int) -> None:
        """A transaction index may lack markers from this offset on."""
        self.unindexed_from = offset if self.unindexed_from is None else min(offset, self.unindexed_from)

    def drop_from(
        self, disk: Disk, directory: str, segments: list[Segment], index: int
    ) -> tuple[int, RecoveryReport]:
        """Remove the segments behind a lost tail and let the one before grow again."""
        for segment in reversed(segments[index:]):
            self.removed.append(segment.path)
            segment.remove()
        del segments[index:]
        disk.flush_dir(directory)  # or they might reappear after what is appended now
        if segments[-1].is_sealed:
            segments[-1].load()
        return self.finish(segments)

    def finish(self, segments: list[Segment]) -> tuple[int, RecoveryReport]:
        newest = segments[-1]
        check_reaches(newest, self.end_offset, self.recovery_point)
        report = RecoveryReport(
            self.batches,
            tuple(self.truncations),
            tuple(self.removed),
            unindexed_from=self.unindexed_from,
        )
        return self.end_offset, report
