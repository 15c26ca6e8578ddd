"""Builds indexes that were found bad again, in the executor, from the batches of their segments.

Until that is done, reads that need them wait (``Partition``) or begin again (:mod:`.time_lookups`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pykraft.broker.logs.damaged_logs import DamagedLogs
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.log_store.interface import DAMAGE_ERRORS
from pykraft.log_store.segment import BadIndexError, Segment
from pykraft.runtime.tasks import TaskSupervisor, Workers

logger = logging.getLogger(__name__)


class IndexRebuilds:
    """``on_rebuilt`` is called when reads of a partition that met a bad index can be repeated."""

    def __init__(
        self, table: LogTable, damaged: DamagedLogs, workers: Workers, tasks: TaskSupervisor
    ) -> None:
        self._table = table
        self._damaged = damaged
        self._workers = workers
        self._tasks = tasks
        self._rebuilding: set[Segment] = set()
        self._ended = asyncio.Event()
        self.on_rebuilt: Callable[[TopicPartition], None] = lambda key: None

    def start(self, opened: OpenLog, error: BadIndexError) -> None:
        """Build an index again, unless that is under way."""
        if error.segment not in self._rebuilding:
            logger.warning("%s; the indexes are built again", error)
            self._rebuilding.add(error.segment)
            self._tasks.start(self._rebuild(opened, error.segment), "rebuild-index")

    async def until_rebuilt(self, segment: Segment) -> None:
        """Wait for the end of a build, if one is under way."""
        while segment in self._rebuilding:
            self._ended.clear()
            await self._ended.wait()

    async def _rebuild(self, opened: OpenLog, segment: Segment) -> None:
        log = opened.log
        try:
            is_complete = False
            while not is_complete and self._table.is_in_use(opened):
                build = log.prepare_index_build(segment)
                if build is None:
                    break
                try:
                    await self._workers.run(build.run)
                except DAMAGE_ERRORS as error:
                    if log.is_as_prepared(build):  # otherwise the file was cut or deleted meanwhile
                        self._damaged.report(log, error)
                else:
                    is_complete = self._table.is_in_use(opened) and log.complete_index_build(build)
        except OSError as error:
            self._damaged.storage_failed(log, error)
        finally:
            self._rebuilding.discard(segment)
            self._ended.set()
        self.on_rebuilt(opened.topic_partition)
