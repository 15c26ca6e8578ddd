"""Builds indexes that were found bad again, in the executor, from the batches of their segments.

Until that is done, reads that need them wait (``Partition``) or begin again (:mod:`.time_lookups`). One that
cannot be built is left for a while, however many reads ask for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

from pykraft.broker.logs.damaged_logs import DamagedLogs
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.logs.log_work import LogWork
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.log_store.interface import DAMAGE_ERRORS
from pykraft.log_store.segment.reading import BadIndexError, ReadableSegment
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor, Workers

logger = logging.getLogger(__name__)

RETRY_MS = 10_000
"""After a build that failed."""


class IndexRebuilds:
    """``on_rebuilt`` is called when reads of a partition that met a bad index can be repeated."""

    def __init__(
        self,
        table: LogTable,
        damaged: DamagedLogs,
        work: LogWork,
        clock: Clock,
        workers: Workers,
        tasks: TaskSupervisor,
    ) -> None:
        self._table = table
        self._damaged = damaged
        self._work = work
        self._clock = clock
        self._workers = workers
        self._tasks = tasks
        self._rebuilding: set[ReadableSegment] = set()
        #: Those that could not be built, and when that is tried again.
        self._retry_ms: WeakKeyDictionary[ReadableSegment, int] = WeakKeyDictionary()
        self._ended = asyncio.Event()
        self.on_rebuilt: Callable[[TopicPartition], None] = lambda key: None

    def start(self, opened: OpenLog, error: BadIndexError) -> None:
        """Build an index again, unless that is under way, or failed a moment ago."""
        segment, now_ms = error.segment, self._clock.monotonic_ms()
        if segment not in self._rebuilding and self._retry_ms.get(segment, now_ms) <= now_ms:
            logger.warning("%s; the indexes are built again", error)
            self._rebuilding.add(segment)
            self._tasks.start(self._rebuild(opened, segment), "rebuild-index")

    async def until_rebuilt(self, segment: ReadableSegment) -> None:
        """Wait for the end of a build, if one is under way."""
        while segment in self._rebuilding:
            self._ended.clear()
            await self._ended.wait()

    async def _rebuild(self, opened: OpenLog, segment: ReadableSegment) -> None:
        is_over = False
        try:
            with self._work.guarding("index rebuild", opened.log, partial(self._put_off, segment)):
                await self._build(opened, segment)
                self._retry_ms.pop(segment, None)
                is_over = True
        finally:
            self._rebuilding.discard(segment)
            self._ended.set()
        if is_over:
            self.on_rebuilt(opened.topic_partition)

    async def _build(self, opened: OpenLog, segment: ReadableSegment) -> None:
        log = opened.log
        is_complete = False
        while not is_complete and self._table.is_in_use(opened):
            build = log.prepare_index_build(segment)
            if build is None:
                return
            try:
                await self._workers.run(build.run)
            except DAMAGE_ERRORS as error:
                if log.is_as_prepared(build):  # otherwise the file was cut or deleted meanwhile
                    self._damaged.report(log, error)
            else:
                is_complete = self._table.is_in_use(opened) and log.complete_index_build(build)

    def _put_off(self, segment: ReadableSegment, error: Exception) -> None:
        self._retry_ms[segment] = self._clock.monotonic_ms() + RETRY_MS
