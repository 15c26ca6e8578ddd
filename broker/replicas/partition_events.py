"""Acts on the events of partitions: wakes requests, marks fetch sessions, reports damaged logs, and so on."""

from __future__ import annotations

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.leading.log_starts import LogStarts
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.log_store.interface import CorruptLogError
from pykraft.runtime.tasks import TaskSupervisor


class BrokerPartitionEvents:
    """The ``PartitionEvents`` of all partitions of one broker.

    ``urgent_high_watermarks``: followers serve consumers, so they are told of a high watermark at once, and
    not with the next records.
    """

    def __init__(
        self,
        logs: LogManager,
        log_starts: LogStarts,
        wakeups: Wakeups,
        isr_proposals: IsrProposals,
        fetchers: ReplicaFetchers,
        tasks: TaskSupervisor,
        *,
        urgent_high_watermarks: bool,
    ) -> None:
        self._logs = logs
        self._log_starts = log_starts
        self._wakeups = wakeups
        self._isr_proposals = isr_proposals
        self._fetchers = fetchers
        self._tasks = tasks
        self._urgent_high_watermarks = urgent_high_watermarks

    def log_grew(self, partition: Partition) -> None:
        for waiter in partition.replica_waiters:
            waiter.wake()
        for cached in partition.follower_sessions:
            cached.changed(wake=True)
        self._isr_proposals.expect_changes(partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        for waiter in partition.consumer_waiters:
            waiter.wake()
        for cached in partition.consumer_sessions:
            cached.changed(wake=True)
        for cached in partition.follower_sessions:
            cached.changed(wake=self._urgent_high_watermarks)
        self._wakeups.high_watermark_moved(partition)

    def log_start_moved(self, partition: Partition) -> None:
        # Followers are told at once, and consumers below the log start that their offset is out of range.
        self.readable_again(partition)
        self._log_starts.store(partition)

    def readable_again(self, partition: Partition) -> None:
        """Reads that were put off can be repeated."""
        for waiter in (*partition.replica_waiters, *partition.consumer_waiters):
            waiter.wake()
        self._mark_sessions(partition)

    def _mark_sessions(self, partition: Partition) -> None:
        for cached in (*partition.follower_sessions, *partition.consumer_sessions):
            cached.changed(wake=True)

    def state_changed(self, partition: Partition) -> None:
        self._mark_sessions(partition)
        if partition.is_leader:
            self._isr_proposals.expect_changes(partition)
        else:
            self._fetchers.state_changed(partition)

    def producers_lost(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        rebuild = self._logs.producers.rebuild(key, partition.high_watermark)
        self._tasks.start(rebuild, "rebuild-producers")

    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None:
        self._logs.damaged.storage_failed(partition.log, error)

    def replication_failed(self, partition: Partition, error: Exception) -> None:
        self._logs.work.failed("replication", partition.log.name, error)
