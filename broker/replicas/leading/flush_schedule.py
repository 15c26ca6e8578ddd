"""Flushes logs when ``flush.messages`` or ``flush.ms`` asks for it, and lets those go on who waited for that.

A flush that is due by messages begins at once, in a worker thread, and covers all that is appended until it
begins: the produce requests of one turn share it. One that is due by time has a deadline, the same for all
that is appended until then. Costs nothing for logs that are not written to.
"""

from __future__ import annotations

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor


class FlushSchedule:
    """When the logs of one broker are flushed."""

    def __init__(
        self,
        logs: LogManager,
        table: ReplicaTable,
        fetchers: ReplicaFetchers,
        wakeups: Wakeups,
        clock: Clock,
        tasks: TaskSupervisor,
    ) -> None:
        self._logs = logs
        self._table = table
        self._fetchers = fetchers
        self._wakeups = wakeups
        self._clock = clock
        self._tasks = tasks
        self._flushing: set[OpenLog] = set()
        #: At most one for each log, so that a long flush.ms collects none.
        self._deadlines: dict[OpenLog, _TimedFlush] = {}
        logs.on_unflushed = self.unflushed
        logs.on_flushed = self.flushed

    def unflushed(self, opened: OpenLog) -> None:
        """A log has to be flushed, now or in time."""
        if opened.log.is_flush_due:
            if opened not in self._flushing:
                self._flushing.add(opened)
                self._tasks.start(self._flush_while_due(opened), "flush")
        elif (flush_ms := opened.log.config.flush_ms) is not None:
            timed = self._deadlines.get(opened)
            if timed is None:
                timed = self._deadlines[opened] = _TimedFlush(self, opened)
            else:  # what it was for is durable, or its flush is under way
                self._wakeups.deadlines.remove(timed)
            self._wakeups.wait_until(timed, self._clock.monotonic_ms() + flush_ms)

    async def _flush_while_due(self, opened: OpenLog) -> None:
        try:
            with self._logs.work.guarding("flush", opened.log):
                while opened.log.is_flush_due and self._logs.is_usable(opened):
                    await self._logs.flush_up_to(opened, opened.log.log_end_offset)
        finally:
            self._flushing.discard(opened)

    async def _flush_once(self, opened: OpenLog) -> None:
        with self._logs.work.guarding("flush", opened.log):
            await self._logs.flush_up_to(opened, opened.log.log_end_offset)

    def flush_in_time(self, opened: OpenLog) -> None:
        """The oldest unflushed record has waited for ``flush.ms``."""
        del self._deadlines[opened]
        self._tasks.start(self._flush_once(opened), "flush")

    def flushed(self, key: TopicPartition) -> None:
        """Acknowledge what waited for a flush of this log."""
        partition = self._table.find(*key)
        if partition is None:
            return
        if partition.is_leader:
            partition.log_flushed()
        else:
            self._fetchers.fetch_soon(partition)


class _TimedFlush:
    """A deadline of one log."""

    __slots__ = ("_opened", "_schedule", "bucket")

    def __init__(self, schedule: FlushSchedule, opened: OpenLog) -> None:
        self._schedule = schedule
        self._opened = opened
        self.bucket = -1

    def expire(self) -> None:
        self._schedule.flush_in_time(self._opened)
