"""Flushes of a log: the one part that may run in a thread beside appends."""

from __future__ import annotations

from pykraft.log_store.flush import FlushJob, snapshot
from pykraft.log_store.log.aborted import AbortedTransactions


class Flushing(AbortedTransactions):
    """Moves the recovery point: below it everything is durable."""

    @property
    def acknowledged_end_offset(self) -> int:
        """Up to where appends may be acknowledged: the log end unless ``flush.messages`` wait for a flush."""
        return self._unflushed.acknowledged_end(self.log_end_offset)

    @property
    def is_flush_due(self) -> bool:
        """Whether appends wait for a flush to be acknowledged."""
        return self._unflushed.is_due

    def prepare_flush(self) -> FlushJob:
        """A snapshot of what is not yet durable. At most one job per log may be under way."""
        end_offset = self.log_end_offset  # first: everything read after it includes what it covers
        self._flush_end_offset = end_offset
        self._unflushed.flush_begins()
        return snapshot(
            self._disk,
            self.directory,
            self._segments,
            self.epoch_cache,
            end_offset=end_offset,
            truncations=self._truncations,
            directory_changes=self._directory_changes,
            directory_flushed=self._directory_flushed,
        )

    def flush_recovered(self) -> None:
        """Make durable what recovery has truncated. Blocks; may run in a thread while the log is not used."""
        if self._is_cut_unflushed:
            self._active.file.flush()
            self._is_cut_unflushed = False

    def complete_flush(self, job: FlushJob) -> int:
        """Publish a job that ran; the recovery point stays if the log was truncated meanwhile."""
        self.epoch_cache.persisted = job.epochs
        self._directory_flushed = job.directory_changes
        if job.truncations == self._truncations:
            for segment in job.sealed:
                segment.is_durable = True
            for segment, count in job.aborted:
                if segment.aborted.known_count == count:
                    segment.aborted.storage.is_unflushed = False
            self.recovery_point = max(self.recovery_point, job.end_offset)
            self._unflushed.flushed(self.recovery_point)
            self._is_cut_unflushed = False
        return self.recovery_point

    def flush(self, up_to: int | None = None) -> None:
        """Block until everything appended before this call is durable (nothing to do below ``up_to``)."""
        if up_to is not None and up_to <= self.recovery_point:
            return
        job = self.prepare_flush()
        job.run()
        self.complete_flush(job)

    def _is_unflushed(self) -> bool:
        return (
            self.recovery_point < self.log_end_offset
            or self._is_cut_unflushed
            or self.epoch_cache.is_dirty
            or self._directory_changes != self._directory_flushed
        )
