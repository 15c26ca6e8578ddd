"""Stores log starts that have moved, soon and many at a time, and tells those who wait for it.

The deletion of records is answered when no replica can bring them back, not even after a power loss. So a
moved log start is written to its checkpoint at once, not with the others once a minute. A file holds the log
starts of a whole directory, so moves that come in quick succession share one write.
"""

from __future__ import annotations

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.runtime.paced import paced
from pykraft.runtime.tasks import TaskSupervisor

PAUSE_MS = 100
"""Between the end of a write and the next: retention moves the log starts of many partitions one by one."""


class LogStarts:
    """The log starts of one broker that are yet to be stored."""

    def __init__(self, logs: LogManager, fetchers: ReplicaFetchers, tasks: TaskSupervisor) -> None:
        self._logs = logs
        self._fetchers = fetchers
        self._tasks = tasks
        self._moved: dict[Partition, None] = {}
        self._is_writing = False

    def store(self, partition: Partition) -> None:
        """The log start of a partition has moved: store it soon."""
        self._moved[partition] = None
        if not self._is_writing:
            self._is_writing = True
            self._tasks.start(self._write(), "store-log-starts")

    async def _write(self) -> None:
        try:
            while self._moved:
                moved, self._moved = self._moved, {}
                with self._logs.work.guarding_all("checkpoint", "log starts"):
                    await self._logs.checkpoints.store_log_starts([(p.topic, p.index) for p in moved])
                    async for partition in paced(iter(moved)):
                        partition.log_start_stored()
                        self._fetchers.fetch_soon(partition)
                await self._tasks.sleep(PAUSE_MS)
        finally:
            self._is_writing = False
