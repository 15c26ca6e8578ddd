"""The log of one partition: segments that only grow at the end, found by offset.

Decides when to roll, where a read starts and ends, what a flush covers, and what truncation and retention
remove. Offsets and leader epochs come assigned with the batches; the log never opens a record except to
answer a look-up by time, and never waits: only ``flush`` (or the job it is made of) blocks.

Not thread-safe, with one exception: ``flush`` and a :class:`.FlushJob` may run in a thread beside appends.
Every :class:`OSError` that comes out of a log is final for it: stop using it. Errors that concern this log
only (``DAMAGE_ERRORS``) cost this replica; any other error of the disk halts the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.epoch_cache import LEADER_EPOCH_CHECKPOINT, Epochs
from pykraft.log_store.interface import (
    LogConfig,
)
from pykraft.log_store.log.compacting import Compacting
from pykraft.log_store.opening import open_parts
from pykraft.log_store.segment.segment import MAX_RELATIVE_OFFSET, Segment
from pykraft.runtime.disk import Buffer, Disk

DELETED_DIRECTORY_SUFFIX = "-delete"
"""A partition directory with this suffix is being deleted: remove it at the start."""
_MAX_NAME_BYTES = 255


def renamed_directory(directory: str, suffix: str) -> str:
    """The path of a partition directory with another suffix; a topic name too long for it is shortened."""
    parent, _, name = directory.rpartition("/")
    topic, dash, index = name.rpartition("-")
    ending = f"{dash}{index}{suffix}"
    return f"{parent}/{topic[: _MAX_NAME_BYTES - len(ending)]}{ending}"


def rename_directory(disk: Disk, directory: str, target: str) -> None:
    """Rename a partition directory within its log directory, durably."""
    disk.rename(directory, target)
    disk.flush_dir(directory.rpartition("/")[0] or ".")


class Log(Compacting):
    """See the module. What it reads, flushes, cuts and compacts is in the module of each base class."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        compacted_offset: int = 0,
        clean: bool = False,
        on_batch: Callable[[BatchHeader], None] | None = None,
        flush: bool = True,
    ) -> Log:
        """Open the log in ``directory``, creating it if missing.

        ``recovery_point``, ``log_start_offset`` (None: unknown) and ``compacted_offset`` are what its owner
        stored: how far it was flushed, from where on it is complete, and how far compaction left gaps.
        After an unclean stop everything from the recovery point on is checked (see ``recovery``), each good
        header passing through ``on_batch``; after a clean one nothing is, and ``on_batch`` is not called: use
        :meth:`iter_headers`. If not ``flush``, the caller calls :meth:`flush_recovered` before anything else.
        :class:`CorruptLogError` names file and position of damage, missing segments and
        a missing end of what was flushed included.
        """
        parts = open_parts(
            disk,
            directory,
            config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_offset=compacted_offset,
            clean=clean,
            on_batch=on_batch,
            flush=flush,
        )
        log = cls(disk, directory, config, parts)
        if log.log_end_offset < log.log_start_offset:
            # the records between were deleted on purpose, and the rest is lost: begin where the log should
            log.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
        return log

    def append(self, data: Buffer, headers: Sequence[BatchHeader], *, now_ms: int) -> None:
        """Write whole batches, offsets and epochs assigned, at or above the log end: one write.

        ``data`` is exactly the batches of ``headers``; it is not kept. Not durable until flushed.
        """
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        assert first.base_offset >= self.log_end_offset and not self._is_closed, (
            f"{self.name}: append at {first.base_offset}, log end is {self.log_end_offset}"
        )
        segment = self._active
        if segment.size_bytes + len(data) > self._config.most_segment_bytes or segment.must_roll(
            self._config, headers, last_offset, now_ms
        ):
            segment = self._roll_for(first.base_offset, last_offset, now_ms)
        segment.append(data, headers)
        if last.partition_leader_epoch != self._latest_epoch:
            for header in headers:
                self.epoch_cache.assign(header.partition_leader_epoch, header.base_offset)
            self._latest_epoch = self.epoch_cache.latest_epoch
        start = self.log_end_offset
        # Last, so that a flush beside this never promises bytes that are not written.
        self.log_end_offset = last_offset + 1
        if (
            self._unflushed.has_limits
            and self.on_unflushed is not None
            and self._unflushed.appended(start, self.log_end_offset, self.recovery_point)
        ):
            self.on_unflushed()

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note a leader epoch before its first batch (a leader does so when it is elected)."""
        self.epoch_cache.assign(epoch, start_offset)
        self._latest_epoch = self.epoch_cache.latest_epoch

    def adopt_epochs(self, entries: Epochs) -> None:
        """Take the leader epochs of a log with the same batches, those without a batch included."""
        self.epoch_cache.entries = entries
        self._latest_epoch = self.epoch_cache.latest_epoch

    def _roll_for(self, first_offset: int, last_offset: int, now_ms: int) -> Segment:
        """A segment for these offsets, named by the log end, so that a gap between segments reveals a loss.

        Only where relative offsets would not reach (a gap of 2**31) is it named by the first batch.
        """
        base_offset = self.log_end_offset
        if last_offset - base_offset > MAX_RELATIVE_OFFSET:
            base_offset = first_offset
        if self._active.size_bytes or self._active.base_offset != base_offset:
            self._roll(base_offset, now_ms)
        return self._active

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the newest is empty."""
        if self._active.size_bytes:
            self._roll(self.log_end_offset, now_ms)

    def use_directory(self, directory: str) -> None:
        """The directory has been renamed: open its files under their new paths. Readers keep their files."""
        self.directory, self.name = directory, directory.rpartition("/")[2]
        self.epoch_cache.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        for segment in self._segments:
            segment.use_directory(directory)

    def close(self) -> None:
        """Make everything durable, index entries included, and release the files. Blocks."""
        if self._is_closed:
            return
        self._active.release_room()
        if self._active.flush_indexes() or self._is_unflushed():
            self._directory_changes += 1  # the index files may be new
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Release the files without writing anything (after a fault, or in place of a kill)."""
        self._is_closed = True
        for segment in self._segments:
            segment.close()

    def delete(self) -> None:
        """Remove the log with its directory; a crash in between leaves a directory named for deletion.

        Readers are not affected: slices keep their file.
        """
        self._is_closed = True
        # The owner holds this log: with these, its files would stay open until some garbage collection.
        self.before_truncation = self.on_roll = self.on_bad_index = None
        self.on_deleted = self.on_unflushed = None
        deleted_directory = renamed_directory(self.directory, f".{'0' * 32}{DELETED_DIRECTORY_SUFFIX}")
        self._disk.remove_tree(deleted_directory)
        rename_directory(self._disk, self.directory, deleted_directory)
        self._disk.remove_tree(deleted_directory)
