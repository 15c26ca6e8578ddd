"""Opens what is in the log directories at a start, and decides which of several logs of a partition is used.

:mod:`.log_loading` opens one directory; nothing uses the logs yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pykraft.broker.logs.checkpoint_files import CheckpointFiles
from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.log_checkpoints import LogCheckpoints
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import FoundCopy, LoadedDir, OpenLog, load_dir
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.logs.move_marks import Mark, remove_mark
from pykraft.broker.logs.offline_logs import TopicPartition, read_topic_id, rename_stray
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.log_store.interface import LogConfig
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import Workers

logger = logging.getLogger(__name__)


class LogOpening:
    """``adopt`` takes a log into use."""

    def __init__(
        self,
        disk: Disk,
        dirs: LogDirs,
        table: LogTable,
        checkpoints: LogCheckpoints,
        failures: DirectoryFailures,
        default_config: LogConfig,
        clock: Clock,
        workers: Workers,
        adopt: Callable[[OpenLog], None],
    ) -> None:
        self._disk = disk
        self._dirs = dirs
        self._table = table
        self._checkpoints = checkpoints
        self._failures = failures
        self._default_config = default_config
        self._clock = clock
        self._workers = workers
        self._adopt = adopt
        #: Logs that were found in several directories, or are marked as moved, until :meth:`settle_copies`.
        self._copies: dict[TopicPartition, list[OpenLog]] = {}

    async def open_all(self) -> int | None:
        """Open all logs, the directories at the same time. Damaged ones are set aside, see ``offline``.

        Directories that fail are left out. Returns the broker epoch of the last orderly stop of all of them.
        """
        log_dirs, table = self._dirs.online, self._table
        if len(log_dirs) == 1:
            found = [await self._load(log_dirs[0])]
        else:
            found = await asyncio.gather(*map(self._load, log_dirs))
        epochs: set[int | None] = set()
        opened: dict[TopicPartition, list[OpenLog]] = {}
        copies: dict[str, list[FoundCopy]] = {}
        for log_dir, loaded in zip(log_dirs, found, strict=True):
            if loaded is None:
                continue
            epochs.add(loaded.broker_epoch)
            logs, kept = partial(table.logs_in, log_dir), partial(table.kept_in, log_dir)
            self._checkpoints.files[log_dir] = CheckpointFiles(
                self._disk, log_dir, loaded.stored, logs, kept, self._workers, self._failures.fail
            )
            for one in loaded.logs:
                opened.setdefault(one.topic_partition, []).append(one)
            table.offline.update(loaded.offline)
            copies[log_dir] = loaded.copies
        await self._remove_copies(copies, opened)
        for key, several in opened.items():
            working = [it for it in several if self._dirs.is_online(it.log_dir)]
            used = next((it for it in working if not it.marks), None)
            if used is not None:
                self._adopt(used)
            if len(working) > (used is not None):
                self._copies[key] = working
                table.moved_from.update((key, it.log_dir) for it in working if it.marks)
        for key in table.offline.keys() & table.logs.keys():
            del table.offline[key]  # the replica has started over
        return epochs.pop() if len(epochs) == 1 and not self._dirs.offline else None

    async def _remove_copies(
        self, copies: Mapping[str, Sequence[FoundCopy]], opened: Mapping[TopicPartition, Sequence[OpenLog]]
    ) -> None:
        """Remove copies that have not taken their logs' places; they are made again.

        The marks of their logs go first. And a copy without a log stays, while that may be in a directory
        that does not work: the controller may believe that the replica is here, where it would be missing.
        """
        dirs, table = self._dirs, self._table
        for log_dir, found in copies.items():
            for key, unique, path in found:
                logs, mark = opened.get(key, ()), Mark(dirs.ids.get(log_dir, ZERO_UUID), unique)
                for one in logs:
                    directory = one.log.directory
                    await self._failures.guarded(directory, partial(remove_mark, self._disk, directory, mark))
                    one.marks -= {mark}
                if dirs.offline and not any(dirs.is_online(one.log_dir) for one in logs):
                    topic_id = await self._failures.guarded(log_dir, partial(read_topic_id, self._disk, path))
                    if topic_id is not None:
                        (offline,) = dirs.offline if len(dirs.offline) == 1 else ("",)
                        table.unavailable[key] = (topic_id, offline)
                else:
                    await self._failures.guarded(log_dir, partial(self._disk.remove_tree, path))
                    table.wanted_dirs[key] = log_dir

    async def _load(self, log_dir: str) -> LoadedDir | None:
        job = partial(load_dir, self._disk, log_dir, self._default_config, self._clock.wall_ms())
        loaded = await self._failures.guarded(log_dir, job)
        if loaded is None:
            return None
        try:
            await self.run_together([opened.log.flush_recovered for opened in loaded.logs])
        except OSError as error:
            if not self._failures.fail(log_dir, error):
                raise
            return None
        return loaded

    async def run_together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run jobs in as many threads as there are: flushes of many files share the disk's own work."""
        await asyncio.gather(*(self._workers.run(job) for job in jobs))

    async def settle_copies(self, is_assigned: Callable[[OpenLog], tuple[bool, bool]]) -> None:
        """Keep one of several logs of a partition, and set the others aside; call it before logs are used.

        There are several if a directory comes back that had failed, and the replica had started over in
        another one meanwhile; or if a process died when a log had just been moved. ``is_assigned``: whether
        the controller knows this topic id, and the replica in this directory. If it knows no directory, the
        replica has not been in sync since: the latest log has most to keep. One that is marked as moved is
        never kept; if no other is found it stays where it is, for a start that finds the other directory.
        """
        for key, copies in sorted(self._copies.items()):
            copies = [it for it in copies if self._dirs.is_online(it.log_dir)]
            del self._copies[key]
            kept = max(
                (it for it in copies if not it.marks),
                key=lambda it: (*is_assigned(it), it.log.latest_epoch, it.log.log_end_offset),
                default=None,
            )
            if kept is not None and not all(is_assigned(kept)) and self._may_be_elsewhere(copies):
                if key in self._table.logs:
                    self._table.take_out(key)
                kept = None
            if kept is not None:
                self._adopt(kept)
            for other in copies:
                if other is not kept:
                    await self._put_away(other, kept, is_assigned(other)[0])

    def _may_be_elsewhere(self, copies: Sequence[OpenLog]) -> bool:
        """Whether one of these was moved to a directory that does not work."""
        marks = [mark for it in copies for mark in it.marks]
        return any(self._dirs.may_be_offline(mark.directory) for mark in marks)

    async def _put_away(self, other: OpenLog, kept: OpenLog | None, is_known: bool) -> None:
        """Close a log that is not used. It is deleted if the one that is used has taken its place, and set
        aside if that has not, or the partition is not known; and it stays if it is all that was found.
        """
        key, directory = other.topic_partition, other.log.directory
        has_moved = False
        if kept is not None and other.topic_id == kept.topic_id:
            # a log that had just been moved: its new directory may not yet know its start
            kept.log.advance_log_start(min(other.log.log_start_offset, kept.log.log_end_offset))
            await self._checkpoints.store_log_starts([key])
            has_moved = self._dirs.ids.get(kept.log_dir) in {mark.directory for mark in other.marks}
        if is_known if kept is None else not self._dirs.is_online(kept.log_dir):
            logger.error("%s is not used: it was moved to a directory in which it is missing", directory)
            await self._failures.guarded(directory, other.log.close)
            return
        logger.warning("%s is out of date, or of no partition of this broker", directory)
        await self._checkpoints.forget(other.log_dir, [key])
        job = other.log.delete if has_moved else partial(set_aside_stray, self._disk, other)
        await self._failures.guarded(directory, job)
        self._table.moved_from.discard((key, other.log_dir))


def set_aside_stray(disk: Disk, opened: OpenLog) -> None:
    """Close a log that is not used, and rename its directory. Blocks."""
    opened.log.close()
    rename_stray(disk, opened.log.directory, opened.topic_id)
