"""Opens what is in the log directories at a start, and decides which of several logs of a partition is used.

:mod:`.log_loading` opens one directory; nothing uses the logs yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from pykraft.broker.logs.checkpoint_files import CheckpointFiles
from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.log_checkpoints import LogCheckpoints
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import LoadedDir, OpenLog, load_dir
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.log_store.log import LogConfig, rename_directory, renamed_directory
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import Workers

logger = logging.getLogger(__name__)

STRAY_SUFFIX = "-stray"


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
        #: Logs that were found in several directories, until :meth:`settle_copies`.
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
        for log_dir, loaded in zip(log_dirs, found, strict=True):
            if loaded is None:
                continue
            epochs.add(loaded.broker_epoch)
            logs, kept = partial(table.logs_in, log_dir), partial(table.kept_in, log_dir)
            self._checkpoints.files[log_dir] = CheckpointFiles(
                self._disk, log_dir, loaded.stored, logs, kept, self._workers, self._failures.fail
            )
            for opened in loaded.logs:
                other = table.logs.get(opened.topic_partition)
                if other is None:
                    self._adopt(opened)
                else:
                    self._copies.setdefault(opened.topic_partition, [other]).append(opened)
            table.offline.update(loaded.offline)
            table.wanted_dirs.update(dict.fromkeys(loaded.moves, log_dir))
        for key in table.offline.keys() & table.logs.keys():
            del table.offline[key]  # the replica has started over
        return epochs.pop() if len(epochs) == 1 and not self._dirs.offline else None

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
        replica has not been in sync since: the latest log has most to keep.
        """
        for key, copies in sorted(self._copies.items()):
            copies = [it for it in copies if self._dirs.is_online(it.log_dir)]
            del self._copies[key]
            if not copies:
                continue
            kept = max(copies, key=lambda it: (*is_assigned(it), it.log.latest_epoch, it.log.log_end_offset))
            self._adopt(kept)
            for other in copies:
                if other is not kept:
                    if other.topic_id == kept.topic_id:
                        # a log that had just been moved: its new directory may not yet know its start
                        start = min(other.log.log_start_offset, kept.log.log_end_offset)
                        kept.log.advance_log_start(start)
                    logger.warning("%s is out of date: %s is used", other.log.directory, kept.log.directory)
                    job = partial(set_aside_stray, self._disk, other)
                    await self._failures.guarded(other.log.directory, job)


def set_aside_stray(disk: Disk, opened: OpenLog) -> None:
    """Close a log that is not used, and rename its directory: it may be the last copy. Blocks."""
    opened.log.close()
    target = renamed_directory(opened.log.directory, f".{opened.topic_id.hex()}{STRAY_SUFFIX}")
    rename_directory(disk, opened.log.directory, target)
