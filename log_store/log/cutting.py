"""Cuts at either end of a log: truncation at its end, retention and deleted records at its start."""

from __future__ import annotations

from functools import partial

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.log.flushing import Flushing
from pykraft.log_store.log.state import LogState
from pykraft.log_store.opening import create_segment
from pykraft.log_store.reader import segment_index
from pykraft.log_store.retention import deletable_segments
from pykraft.log_store.segment.reading import BadIndexError


class Cutting(Flushing):
    """Truncation lowers the recovery point with the log end; retention only moves the log start."""

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at or above ``offset``; returns whether there was anything. Not durable until
        flushed.

        An offset inside a batch drops the whole batch. The recovery point falls with the log end.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        index = segment_index(self._base_offsets, offset)
        found = repairing_indexes(partial(self._segments[index].find, offset))
        if found is not None:
            offset = min(offset, found[1])
        self._notify_truncated(offset)
        self._remove_segments(self._segments[index + 1 :])
        self._use_segments(self._segments[: index + 1])
        segment = self._active
        position, _ = segment.load(offset)
        segment.truncate(position)
        self._is_cut_unflushed = True
        self._truncated_to(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Forget everything; the log starts and ends at ``offset``."""
        self._notify_truncated(0)
        self._remove_segments(self._segments)
        self._use_segments((create_segment(self._disk, self.directory, offset, self._config, now_ms),))
        self._disk.flush_dir(self.directory)
        self.epoch_cache.clear()
        self.log_start_offset = self.stored_log_start_offset = self._whole_from = offset
        self.unindexed_from = None
        self._truncated_to(offset)
        self.recovery_point = offset

    def _notify_truncated(self, offset: int) -> None:
        if self.before_truncation is not None:
            self.before_truncation(offset)

    def _truncated_to(self, offset: int) -> None:
        self._truncations += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.stored_log_start_offset = min(self.stored_log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_end_offset = min(self.cleaned_end_offset, offset)
        self._unflushed.truncated(offset)
        self.epoch_cache.truncate_from_end(offset)
        self._latest_epoch = self.epoch_cache.latest_epoch

    def delete_old_segments(self, now_ms: int, *, limit_offset: int | None = None) -> int:
        """Retire and delete at once, for logs whose start is not stored; the number of segments deleted."""
        if not self.retire_old_segments(now_ms, limit_offset=limit_offset):
            return 0
        return self.delete_retired_segments(self.log_start_offset)

    def retire_old_segments(self, now_ms: int, *, limit_offset: int | None = None) -> bool:
        """Move the log start past the segments that time, size and log start retire; returns whether there
        are segments to delete then. Store the log start before :meth:`delete_retired_segments`: a start that
        misses segments which the stored log start still needs takes that for damage.

        Nothing that reaches above ``limit_offset`` (the high watermark; default the log end) is touched.
        """
        ends = [*self._base_offsets[1:], self.log_end_offset]
        count_deletable = partial(
            deletable_segments,
            self._segments,
            ends,
            self._config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            limit_offset=self.log_end_offset if limit_offset is None else limit_offset,
        )
        try:
            count = count_deletable()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                return False  # the next check knows the age of the segment
            count = repairing_indexes(count_deletable)
        if count == 0:
            return False
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        self.advance_log_start(self._base_offsets[count])
        return True

    def delete_retired_segments(self, log_start_offset: int) -> int:
        """Delete the segments that lie wholly below ``log_start_offset``, the stored one; returns how many.

        Readers are not affected: slices keep their file.
        """
        count = segment_index(self._base_offsets, min(log_start_offset, self.log_start_offset))
        old, kept = self._segments[:count], self._segments[count:]
        if old:
            self._use_segments(kept)
            for segment in old:
                self._delete(segment)
            self._directory_changes += 1
        return count

    def advance_log_start(self, offset: int) -> None:
        """Hide everything below ``offset``; the next retention check deletes whole segments."""
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot start {self.name} at {offset}, beyond its end {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epoch_cache.truncate_from_start(offset)

    def adopt_log_start(self, other: LogState) -> None:
        """Take the log start of a log with the same batches, and how far that one is durable."""
        self.advance_log_start(other.log_start_offset)
        self.stored_log_start_offset = other.stored_log_start_offset

    def log_start_stored(self, offset: int) -> None:
        """The owner has stored this log start durably, and nothing was truncated meanwhile."""
        self.stored_log_start_offset = max(self.stored_log_start_offset, min(offset, self.log_start_offset))
