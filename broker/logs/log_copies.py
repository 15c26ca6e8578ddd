"""The copies of logs that are being moved, and the moment in which a copy takes its log's place (KIP-113).

:mod:`pykraft.broker.replicas.placement.log_moves` decides when each step is taken; :mod:`.future_log` decides
what is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.future_log import FutureLog, future_name
from pykraft.broker.logs.log_checkpoints import LogCheckpoints
from pykraft.broker.logs.log_dirs import LogDirs, is_of_the_process, is_out_of_space
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable, LogUses
from pykraft.broker.logs.move_marks import Mark, remove_mark, write_mark
from pykraft.broker.logs.offline_logs import TopicPartition, read_topic_id, rename_stray
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LogCopies:
    """``adopt`` takes a log into use that has taken another's place."""

    def __init__(
        self,
        disk: Disk,
        dirs: LogDirs,
        table: LogTable,
        uses: LogUses,
        checkpoints: LogCheckpoints,
        failures: DirectoryFailures,
        clock: Clock,
        adopt: Callable[[OpenLog], None],
    ) -> None:
        self._disk = disk
        self._dirs = dirs
        self._table = table
        self._uses = uses
        self._checkpoints = checkpoints
        self._failures = failures
        self._clock = clock
        self._adopt = adopt

    async def create(self, key: TopicPartition, log_dir: str, unique: str) -> FutureLog | None:
        """An empty copy of a log in another directory; None if that fails, or the log is gone."""
        await self._uses.until_unused(key)  # what it was may be there until it has settled
        opened = self._table.logs.get(key)
        if opened is None:
            return None
        if (key, log_dir) in self._table.moved_from:
            await self._set_aside(key, log_dir)
        await self._checkpoints.forget(log_dir, [key])  # what an earlier log has left
        now_ms = self._clock.wall_ms()
        job = partial(self._create_unless_full, log_dir, opened, unique, now_ms)
        future = await self._failures.guarded(log_dir, job)
        if future is not None and self._table.is_in_use(opened):
            self._table.futures[key] = future
        return future

    def _create_unless_full(
        self, log_dir: str, source: OpenLog, unique: str, now_ms: int
    ) -> FutureLog | None:
        """Blocks."""
        try:
            return FutureLog.create(self._disk, log_dir, source, unique, now_ms)
        except OSError as error:
            if not (is_out_of_space(error) or is_of_the_process(error)):
                raise
            logger.error("%s cannot be moved to %s: %s", source.log.name, log_dir, error)
            self._disk.remove_tree(f"{log_dir}/{future_name(*source.topic_partition, unique)}")
            return None

    def failed(self, future: FutureLog, error: OSError) -> bool:
        """A copy could not be written: its directory has failed, or is full, or the process lacked something;
        whether the copy is to be discarded.

        Apache Kafka takes a full directory offline, with all replicas in it. But the copy is the only one
        that has lost anything, and what it took is free once it is deleted.
        """
        if is_out_of_space(error) or is_of_the_process(error):
            return True
        self._failures.fail(future.log_dir, error)
        return False

    async def discard(self, future: FutureLog) -> None:
        """Delete a copy that no longer grows, once its log is not marked: without a copy a marked log counts
        as replaced. A log that is out of reach keeps both: the controller may believe that it is here.
        """
        key = future.source.topic_partition
        if self._table.futures.get(key) is future:
            del self._table.futures[key]
        future.log.abandon()
        if future.is_announced and not await self._remove_mark(future):
            logger.error("%s stays until the next start", future.log.directory)
            return
        await self._failures.guarded(future.log_dir, partial(self._disk.remove_tree, future.log.directory))

    async def leave(self, future: FutureLog) -> None:
        """The broker stops: a start makes the copy again."""
        future.log.abandon()
        if future.is_marked:
            await self._remove_mark(future)

    async def mark(self, future: FutureLog) -> bool:
        """Mark the log as one whose place this copy may have taken; False if that is not possible."""
        await self._uses.until_unused(future.source.topic_partition)
        if self._table.is_in_use(future.source):
            future.is_marked = await self._change_mark(future, write_mark)
        return future.is_marked

    async def _remove_mark(self, future: FutureLog) -> bool:
        """Whether the log, if it is still there, has no mark of this copy."""
        key = future.source.topic_partition
        future.is_marked = False
        await self._uses.until_unused(key)
        if self._table.is_in_use(future.source):
            return await self._change_mark(future, remove_mark)
        return key not in self._table.unavailable

    async def _change_mark(self, future: FutureLog, change: Callable[[Disk, str, Mark], None]) -> bool:
        path, mark = future.source.log.directory, Mark(self._dirs.ids[future.log_dir], future.unique)

        def change_unless_full() -> bool:
            try:
                change(self._disk, path, mark)
            except OSError as error:
                if not (is_out_of_space(error) or is_of_the_process(error)):
                    raise
                logger.error("%s/%s: %s", path, mark.name, error)
                return False
            return True

        with self._uses.using(self._uses.settling, future.source.topic_partition):
            return bool(await self._failures.guarded(path, change_unless_full))

    def promote(self, future: FutureLog) -> OpenLog | None:
        """Let the copy take the place of the log, in one turn of the event loop; returns what is used now.

        None if it does not hold everything, or is not marked, or a flush, a snapshot or the end of a round of
        compaction of the log is under way, or a flush is due.
        """
        old = future.source
        key = old.topic_partition
        is_current = self._table.is_in_use(old) and not self._uses.is_used(key)
        is_ready = future.is_marked and future.holds_everything()
        if not is_current or old.log.is_flush_due or not is_ready:
            return None
        new = future.take_place(self._disk)
        del self._table.futures[key]
        self._table.moved_from.add((key, old.log_dir))
        old.log.before_truncation = old.log.on_roll = old.log.on_unflushed = None
        new.log.cleaned_end_offset = old.log.cleaned_end_offset
        self._adopt(new)
        return new

    async def delete_moved(self, old: OpenLog, new: OpenLog) -> None:
        """The log was moved: make that durable, then delete the old one. Until then no other log may have its
        name, and the old directory's checkpoint files keep what they say of it.
        """
        with self._uses.using(self._uses.settling, old.topic_partition):
            await self._delete_moved(old, new)

    async def _delete_moved(self, old: OpenLog, new: OpenLog) -> None:
        # No round has begun since the move did: the copy has what the last one left.
        cleaned, cuts = self._checkpoints.cleaned_offset(old), new.log.truncation_count
        done = await self._failures.guarded(new.log_dir, partial(self._make_durable, new.log_dir))
        if done is None:
            return
        await self._checkpoints.write_offsets(new.log_dir)
        if not self._dirs.is_online(new.log_dir):
            return  # its checkpoint may lack the log start, which the old directory has
        if cleaned is not None:
            await self._checkpoints.store_cleaned_offset(new, cleaned, cuts)
        await self._checkpoints.forget(old.log_dir, [old.topic_partition])
        await self._failures.guarded(old.log_dir, old.log.delete)
        self._table.moved_from.discard((old.topic_partition, old.log_dir))

    async def set_aside_moved(self, key: TopicPartition) -> None:
        """A new log begins: an earlier one, moved to a directory that has failed, gives up the name."""
        for path in [path for moved, path in self._table.moved_from if moved == key]:
            await self._uses.until_unused(key)
            await self._set_aside(key, path)

    async def _set_aside(self, key: TopicPartition, log_dir: str) -> None:
        await self._checkpoints.forget(log_dir, [key])
        await self._failures.guarded(log_dir, partial(self._set_aside_moved, f"{log_dir}/{key[0]}-{key[1]}"))
        self._table.moved_from.discard((key, log_dir))

    def _set_aside_moved(self, directory: str) -> None:
        if self._disk.is_dir(directory):
            rename_stray(self._disk, directory, read_topic_id(self._disk, directory))

    def _make_durable(self, log_dir: str) -> bool:
        self._disk.flush_dir(log_dir)
        return True
