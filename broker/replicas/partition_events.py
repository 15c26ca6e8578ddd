"""Acts on the events of partitions: wakes the waiting, rebuilds producer state, reports damaged logs."""

from __future__ import annotations

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.log_starts import LogStarts
from pykraft.broker.replicas.partition import Partition
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.log_store.interface import CorruptLogError
from pykraft.runtime.tasks import TaskSupervisor


class BrokerPartitionEvents:
    """The :class:`~pykraft.broker.replicas.partition.PartitionEvents` of all partitions of one broker."""

    def __init__(
        self, logs: LogManager, log_starts: LogStarts, wakeups: Wakeups, tasks: TaskSupervisor
    ) -> None:
        self._logs = logs
        self._log_starts = log_starts
        self._wakeups = wakeups
        self._tasks = tasks

    def log_grew(self, partition: Partition) -> None:
        for waiter in partition.replica_waiters:
            waiter.wake()

    def high_watermark_moved(self, partition: Partition) -> None:
        for waiter in partition.consumer_waiters:
            waiter.wake()
        self._wakeups.high_watermark_moved(partition)

    def log_start_moved(self, partition: Partition) -> None:
        # Followers are told at once, and consumers below the log start that their offset is out of range.
        for waiter in [*partition.replica_waiters, *partition.consumer_waiters]:
            waiter.wake()
        self._log_starts.store(partition)

    def producers_lost(self, partition: Partition) -> None:
        rebuild = self._logs.rebuild_producers((partition.topic, partition.index))
        self._tasks.start(rebuild, "rebuild-producers")

    def readable_again(self, partition: Partition) -> None:
        """Reads that were put off can be repeated."""
        for waiter in (*partition.replica_waiters, *partition.consumer_waiters):
            waiter.wake()

    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None:
        self._logs.storage_failed(partition.log, error)
