"""Changes the roles of open replicas: one becomes a leader or a follower, or is removed.

The controller decides the role; the partition takes it (:mod:`pykraft.broker.replicas.partition.partition`),
and the parts that depend on it are told: the fetchers, requests that wait for a leader, and coordinators that
keep their state in the partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.openings import Openings
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import TopicCoordinator
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.clock import Clock


class ReplicaRoles:
    """``coordinators``: the coordinators by the name of the topic that holds their state."""

    def __init__(
        self,
        table: ReplicaTable,
        worklist: Worklist,
        fetchers: ReplicaFetchers,
        openings: Openings,
        coordinators: Mapping[str, TopicCoordinator],
        clock: Clock,
    ) -> None:
        self._table = table
        self._worklist = worklist
        self._fetchers = fetchers
        self._openings = openings
        self._coordinators = coordinators
        self._clock = clock

    def change_role(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Apply the controller's newest state of a partition; an older one changes nothing."""
        was_leader = partition.is_leader
        if not partition.apply(registration, self._clock.monotonic_ms()):
            return
        self._openings.opened((partition.topic, partition.index))
        if partition.is_leader:
            self._fetchers.unfollow(partition)
            coordinator = self._coordinators.get(partition.topic)
            if coordinator is not None:
                coordinator.on_elected(partition.index, partition.leader_epoch)
            return
        if was_leader:
            self._notify_resigned(partition)
        if partition.leader_id is None:
            self._fetchers.unfollow(partition)
        else:
            self._fetchers.follow(partition)

    def _notify_resigned(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.on_resigned(partition.index)

    def drop(self, partition: Partition, code: ErrorCode) -> None:
        """Stop serving the replica, refuse its waiting requests with ``code``, and have its log looked at."""
        self._table.remove(partition)
        self.resign(partition, code)

    def resign(self, partition: Partition, code: ErrorCode) -> None:
        """As :meth:`drop`, for a replica that is no longer in the table."""
        self._fetchers.unfollow(partition)
        was_leader = partition.is_leader
        partition.leader_id = None
        partition.refuse_waiters(code)
        if was_leader:
            self._notify_resigned(partition)
        self._worklist.add((partition.topic, partition.index))

    def handle_damage(self, key: TopicPartition) -> None:
        """The log was found damaged and is offline: stop serving its replica."""
        partition = self._table.find(*key)
        if partition is None:
            self._worklist.add(key)
        else:
            self.drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
