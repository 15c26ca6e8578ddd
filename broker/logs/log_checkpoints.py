"""When the checkpoint files of the log directories are written, and what may only happen after that.

A directory whose files cannot be written has failed (:mod:`.directory_failures`) and is left out.
:mod:`.checkpoint_files` decides what is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykraft.broker.logs.checkpoint_files import CheckpointFiles
from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.logs.offline_logs import TopicPartition


class LogCheckpoints:
    """``files``: of each directory that could be opened."""

    def __init__(self, dirs: LogDirs, table: LogTable, failures: DirectoryFailures) -> None:
        self._dirs = dirs
        self._table = table
        self._failures = failures
        self.files: dict[str, CheckpointFiles] = {}

    async def write(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the recovery points, log starts and high watermarks of every directory."""
        await self.write_high_watermarks(high_watermarks)
        for log_dir in self._dirs.online:
            await self.write_offsets(log_dir)

    async def write_offsets(self, log_dir: str) -> None:
        """Write the recovery points and log starts of a directory."""
        with self._failures.leaving_out(log_dir):
            await self.files[log_dir].write_recovery_points()
            await self.files[log_dir].write_log_starts()

    async def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for log_dir, meant in [(it, dict(self._table.logs_in(it))) for it in self._dirs.online]:
            with self._failures.leaving_out(log_dir):
                await self.files[log_dir].write_high_watermarks(high_watermarks, meant)

    async def forget(self, log_dir: str, keys: Iterable[TopicPartition]) -> None:
        """See :meth:`CheckpointFiles.forget`."""
        with self._failures.leaving_out(log_dir):
            await self.files[log_dir].forget(keys)

    async def store_log_starts(self, keys: Iterable[TopicPartition]) -> None:
        """Write the starts of at least these logs; call it before :meth:`delete_retired_segments`."""
        logs = self._table.logs
        for log_dir in {logs[key].log_dir: None for key in keys if key in logs}:
            if self._dirs.is_online(log_dir):
                with self._failures.leaving_out(log_dir):
                    await self.files[log_dir].write_log_starts()

    def delete_retired_segments(self, key: TopicPartition) -> None:
        """Delete the segments below the stored log start that a snapshot of their producers stands for."""
        opened = self._table.logs.get(key)
        if opened is not None:
            assert opened.snapshots is not None
            end_offset = min(opened.log.stored_log_start_offset, opened.snapshots.durable_offset)
            if opened.log.delete_retired_segments(end_offset):
                opened.snapshots.remove_unneeded()

    def cleaned_offset(self, opened: OpenLog) -> int | None:
        """Return the end of the last round of compaction; None if there was none."""
        return self.files[opened.log_dir].cleaned_offset(opened.topic_partition)

    async def store_cleaned_offset(self, opened: OpenLog, offset: int, truncation_count: int) -> None:
        """Store what a round has reached that began at this ``truncation_count``, and is durable."""
        if self._table.may_clean(opened):
            key, log, files = opened.topic_partition, opened.log, self.files[opened.log_dir]
            with self._failures.leaving_out(opened.log_dir):
                await files.write_cleaned_offset(key, offset, truncation_count)
                if offset >= log.compacted_offset > 0 and log.truncation_count == truncation_count:
                    await files.forget_gaps(key)
                    log.compacted_offset = 0
