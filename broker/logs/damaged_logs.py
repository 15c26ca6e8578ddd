"""Takes damaged logs out of use and sets their directories aside, whatever still uses them.

Damage of a log's files costs only its replica, which then starts over (``replicas.lost_replicas``). Decides
when a directory may be renamed; :mod:`.offline_logs` does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pykraft.broker.logs import offline_logs
from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable, LogUses
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.log_store.interface import DAMAGE_ERRORS, CorruptLogError
from pykraft.log_store.log.log import Log
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import TaskSupervisor, Workers

logger = logging.getLogger(__name__)


class DamagedLogs:
    """``on_damage`` is called for a log that has just been taken out of use."""

    def __init__(
        self,
        disk: Disk,
        dirs: LogDirs,
        table: LogTable,
        uses: LogUses,
        failures: DirectoryFailures,
        workers: Workers,
        tasks: TaskSupervisor,
        on_damage: Callable[[TopicPartition], None],
    ) -> None:
        self._disk = disk
        self._dirs = dirs
        self._table = table
        self._uses = uses
        self._failures = failures
        self._workers = workers
        self._tasks = tasks
        self._on_damage = on_damage
        self._setting_aside: dict[TopicPartition, asyncio.Task[None]] = {}

    def report(self, log: Log, error: Exception) -> None:
        """A log's files are damaged: take it offline, unless it has been taken out of use meanwhile."""
        opened = self._table.find(log)
        if opened is None:
            return
        key = opened.topic_partition
        logger.error("%s-%d was taken offline: %s", *key, error)
        self.take_offline(opened, error)
        self._on_damage(key)

    def storage_failed(self, log: Log, error: OSError | CorruptLogError) -> None:
        """A log can no longer be used.

        Damage of its files costs only this replica; any other error of the disk costs all replicas of its
        directory, since nothing on that disk can be trusted any more.
        """
        if isinstance(error, DAMAGE_ERRORS):
            self.report(log, error)
        else:
            self._failures.fail(log.directory, error)

    def take_offline(self, opened: OpenLog, error: Exception) -> None:
        """Take a damaged log out of use. :meth:`set_aside` comes next."""
        key = opened.topic_partition
        self._table.take_out(key)
        self._table.offline[key] = OfflineLog(
            opened.topic_id, opened.log_dir, opened.log.directory, str(error)
        )

    def note_missing(self, key: TopicPartition, topic_id: Uuid, directory: Uuid) -> None:
        """The log of a replica is not in the directory that the controller knows it in, which works."""
        where = self._dirs.path_of(directory)
        reason = f"its log is not in the directory {where or uuid_to_str(directory)}"
        logger.error("%s-%d is damaged: %s", *key, reason)
        self._table.offline[key] = OfflineLog(
            topic_id, where or self._dirs.online[0], None, reason, is_set_aside=True
        )

    async def set_aside(self, key: TopicPartition) -> None:
        """Rename the directory of an offline log. Responses that are being sent keep the files they need.

        If its log directory fails, the log is unavailable instead.
        """
        offline = self._table.offline.get(key)
        if offline is not None and not offline.is_set_aside:
            task = self._setting_aside.get(key)
            if task is None:
                work = self._set_aside(key, offline)
                task = self._setting_aside[key] = self._tasks.start(work, "damaged-log")
            await asyncio.shield(task)  # a cancelled caller must not stop it, nor another repeat it

    async def _set_aside(self, key: TopicPartition, offline: OfflineLog) -> None:
        try:
            await self._uses.until_unused(key)
            job = partial(offline_logs.set_aside, self._disk, offline)
            await self._failures.guarded(offline.log_dir, job)
        finally:
            del self._setting_aside[key]
        if offline.is_set_aside:
            where = offline.directory
            logger.error("%s-%d is damaged (%s) and was set aside as %s", *key, offline.reason, where)

    async def size_bytes(self, offline: OfflineLog) -> int:
        """The size of a set-aside directory. :class:`OSError`, which is not final, if it cannot be read."""
        if offline.directory is None:
            return 0
        return await self._workers.run(partial(offline_logs.size_bytes, self._disk, offline.directory))
