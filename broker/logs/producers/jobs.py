"""When producer snapshots are written, and the state of producers is built again or expires.

Snapshots are written one after another, since many logs may roll at once. :mod:`.snapshots` decides
what they contain. What tells of a producer is either in a segment or in a durable snapshot: no segment is
deleted before a snapshot is durable that stands for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_table import LogTable, LogUses
from pykraft.broker.logs.log_work import LogWork
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.logs.producers.snapshots import SnapshotWriter, rebuild_producers
from pykraft.broker.logs.producers.state import Captured
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import TaskSupervisor, Workers

RETRY_MS = 10_000
"""Until producers that could not be rebuilt are read again: without them no producer can write."""


class ProducerJobs:
    """The producers of all logs of one broker."""

    def __init__(
        self,
        disk: Disk,
        table: LogTable,
        uses: LogUses,
        work: LogWork,
        workers: Workers,
        tasks: TaskSupervisor,
    ) -> None:
        self._disk = disk
        self._table = table
        self._uses = uses
        self._work = work
        self._workers = workers
        self._tasks = tasks
        #: Snapshots to be written: of which log, the offset and the producers of each.
        self._due: dict[TopicPartition, tuple[OpenLog, int, Captured]] = {}
        self._task: asyncio.Task[None] | None = None
        #: Called when the producers of a partition are known again.
        self.on_rebuilt: Callable[[TopicPartition], None] = lambda key: None

    def adopt(self, opened: OpenLog) -> None:
        """A log is taken into use."""
        opened.snapshots = SnapshotWriter(self._disk, opened.log, opened.producers, self._workers.run)
        opened.log.on_roll = partial(self.rolled, opened)

    def rolled(self, opened: OpenLog, base_offset: int) -> None:
        """A new segment begins: capture the producers as of its base offset."""
        if not opened.producers.is_behind:
            self._due[opened.topic_partition] = (opened, base_offset, opened.producers.items())
            self.write_soon()

    def truncated(self, opened: OpenLog, end_offset: int) -> None:
        """A log is about to be truncated: no snapshot may hold what it loses."""
        assert opened.snapshots is not None
        opened.snapshots.remove_above(end_offset)
        pending = self._due.get(opened.topic_partition)
        if pending is not None and pending[1] > end_offset:
            del self._due[opened.topic_partition]  # it would contain truncated batches

    def write_soon(self) -> None:
        """Start writing the due snapshots, unless that is under way."""
        if self._task is None:
            self._task = self._tasks.start(self.write_due(), "producer-snapshots")

    async def write_due(self) -> None:
        """Write the due snapshots, except of logs that are no longer in use."""
        try:
            while self._due:
                _, (opened, offset, captured) = self._due.popitem()
                if self._table.is_in_use(opened):
                    await self._write(opened, offset, captured)
        finally:
            self._task = None

    async def stand_in(self, key: TopicPartition) -> None:
        """Store a snapshot for all that retention may delete, unless it fails or the state is unknown."""
        opened = self._table.logs.get(key)
        if opened is not None and not self._stands_in(opened):
            if key not in self._due and not opened.producers.is_behind:
                self._due[key] = (opened, opened.log.log_end_offset, opened.producers.items())
            await self._write_through()

    @staticmethod
    def _stands_in(opened: OpenLog) -> bool:
        assert opened.snapshots is not None
        return opened.snapshots.durable_offset >= opened.log.first_retained_offset

    async def _write_through(self) -> None:
        """Wait until what is due now is written."""
        self.write_soon()
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Wait until the due snapshots are written."""
        if self._task is not None:
            await self._task

    async def write_last(self, opened: OpenLog) -> None:
        """Write a snapshot of the producers at the end of a log that is going to be closed."""
        log, producers = opened.log, opened.producers
        if log.log_end_offset > log.log_start_offset and not producers.is_behind:
            await self._write(opened, log.log_end_offset, producers.items())

    async def _write(self, opened: OpenLog, offset: int, captured: Captured) -> None:
        assert opened.snapshots is not None
        uses, guarding = self._uses, self._work.guarding
        with uses.using(uses.snapshotting, opened.topic_partition), guarding("producer snapshot", opened.log):
            try:
                await opened.snapshots.write(offset, captured, opened.producers.complete)
            except OSError:
                if self._table.is_in_use(opened):  # otherwise its directory has been renamed or removed
                    raise

    async def pause(self) -> None:
        """Yield to other tasks of the event loop."""
        await asyncio.sleep(0)

    async def rebuild(self, key: TopicPartition, high_watermark: int) -> None:
        """Rebuild the state of the producers of a truncated log. The high watermark may rise meanwhile."""
        opened = self._table.logs.get(key)
        while opened is not None and self._table.is_in_use(opened):
            with self._work.guarding("rebuild of producers", opened.log):
                run = self._workers.run
                await rebuild_producers(
                    self._disk, opened.log, opened.producers, high_watermark, run, self.pause
                )
                self.on_rebuilt(key)
                return
            if self._table.is_in_use(opened):
                await self._tasks.sleep(RETRY_MS)

    def expire(self, key: TopicPartition, now_ms: int, max_idle_ms: int) -> None:
        """Forget idle producers, and record that those of deleted segments are forgotten."""
        opened = self._table.logs.get(key)
        if opened is None:
            return
        was_complete = opened.producers.complete
        opened.producers.expire(now_ms, max_idle_ms)
        if opened.log.log_start_offset > 0:
            opened.producers.complete = False
        if was_complete and not opened.producers.complete:
            assert opened.snapshots is not None
            opened.snapshots.forget_some()
