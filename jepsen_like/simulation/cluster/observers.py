"""How the simulation observes the replicas and the coordinated groups of a shipped node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykraft.broker.replicas.partition.observer import PartitionObserver
from pykraft.group_coordinator.observer import GroupObserver

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.group_coordinator.shard import GroupShard
    from pykraft.jepsen_like.simulation.cluster.checks.commits import ClusterChecker
    from pykraft.jepsen_like.simulation.cluster.view import Machine


class ReplicaWatch(PartitionObserver):
    """The replicas of one machine."""

    def __init__(self, machine: Machine, checker: ClusterChecker) -> None:
        self._machine = machine
        self._checker = checker

    def became_leader(self, partition: Partition) -> None:
        self._checker.data.leads(self._machine, partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        self._checker.data.moved(self._machine, partition)

    def log_truncated(self, partition: Partition) -> None:
        self._checker.data.truncated(self._machine, partition)

    def log_restarted(self, partition: Partition) -> None:
        self._checker.data.began_anew(self._machine, partition)

    def records_deleted(self, partition: Partition) -> None:
        self._checker.data.deletions.moved(self._machine, partition)

    def records_read(self, partition: Partition, offset: int) -> None:
        self._checker.data.deletions.served(self._machine, partition, offset)
        self._checker.follower_reads.read(self._machine, partition)


class ShardWatch(GroupObserver):
    """The shards of the group coordinator of one machine."""

    def __init__(self, machine: Machine, checker: ClusterChecker) -> None:
        self._machine = machine
        self._checker = checker

    def shard_loaded(self, shard: GroupShard) -> None:
        self._checker.groups.loaded(self._machine, shard)
        self._checker.groups.committed(shard)

    def shard_committed(self, shard: GroupShard) -> None:
        self._checker.groups.committed(shard)
