"""Applies the metadata image to the replicas here: their roles and their settings.

Logs that must be opened or deleted for that are put on the worklist. Everything about a single replica is
decided in :mod:`pykraft.broker.replicas.partition.partition`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping

from pykraft.broker.config import BrokerConfig
from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.log_dirs import check_cordoned
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.placement.directory_assignments import DirectoryAssignments
from pykraft.broker.replicas.placement.replica_roles import ReplicaRoles
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import ImageSource
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.replicas.replication_quota import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    ReplicationQuotas,
    is_throttled,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.broker_configs import (
    broker_wide_topic_configs,
    concerns_broker,
    effective_dynamic_values,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.records import ConfigResourceType
from pykraft.metadata_log.refused_values import TopicOverrides

logger = logging.getLogger(__name__)

_TURN_COST = 8_000
_LOCAL_COST = 16
"""A turn of the event loop applies changed partitions until they have cost ``_TURN_COST``: 1 for a partition
on other brokers, ``_LOCAL_COST`` for one with a replica here.
"""
NUM_REPLICA_FETCHERS = "num.replica.fetchers"


class ReplicaPublisher:
    """A metadata publisher; it runs after the metadata cache."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ImageSource,
        table: ReplicaTable,
        roles: ReplicaRoles,
        logs: LogManager,
        worklist: Worklist,
        fetchers: ReplicaFetchers,
        quotas: ReplicationQuotas,
        assignments: DirectoryAssignments,
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._broker_defaults = config.topic_defaults
        self._topic_defaults = config.topic_defaults
        self._static_fetchers = config.num_replica_fetchers
        self._cordoned = config.cordoned_log_dirs
        logs.dirs.cordon(self._cordoned)
        self._overrides = TopicOverrides()
        self._metadata = metadata
        self._table = table
        self._roles = roles
        self._logs = logs
        self._worklist = worklist
        self._fetchers = fetchers
        self._quotas = quotas
        self._assignments = assignments
        #: What is to be done, in this order: deleted topics with their replicas here and the indexes that
        #: are left, topics whose settings changed with the replicas that are left, changed partitions.
        self._deleted: deque[tuple[TopicImage, Mapping[int, Partition], Iterator[int]]] = deque()
        self._reconfigured: dict[str, Iterator[Partition]] = {}
        self._changed: deque[tuple[int, Iterator[tuple[Uuid, int]]]] = deque()
        self._applied_offset = -1

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a newer image to the replicas of this broker."""
        for topic in delta.iter_deleted_topics():
            # From now on no request finds them, not even by the name of a topic that is created next.
            self._deleted.append(
                (topic, self._table.remove_topic(topic.id), iter(range(len(topic.partitions))))
            )
        for kind, name in sorted(delta.changed_configs):
            if kind == ConfigResourceType.TOPIC:
                self._overrides.note(delta.old, image, name)
                self._reconfigure(name)
        self._reconfigure_broker_wide(delta, image)
        self._changed.append((image.offset, _changed_partitions(delta)))
        self.apply_some()
        if delta.changed_brokers:
            self._fetchers.brokers_changed()
            for partition in self._table:
                partition.brokers_changed()

    @property
    def unapplied_since(self) -> int | None:
        """The metadata offset up to which all replicas are current; None if the whole image is applied."""
        return self._applied_offset if self._changed else None

    def apply_some(self) -> None:
        """Apply the newest image to changed partitions, as many as one turn of the event loop may take.

        The rest is left to later calls. No change is missed by that, and applying one twice is harmless: a
        partition knows by its epochs what is new. Settings come before partitions: what a new ISR may commit
        depends on min.insync.replicas.
        """
        image, cost = self._metadata.image, self._configure_some(self._drop_some(0))
        while self._changed and cost < _TURN_COST:
            offset, changed = self._changed[0]
            topic_id, index = next(changed, (None, -1))
            topic = None if topic_id is None else image.topic_by_id(topic_id)
            cost += 1
            if topic_id is None:
                self._changed.popleft()
                self._applied_offset = offset
            elif topic is not None:  # otherwise deleted meanwhile, as a later delta says
                registration = topic.partitions[index]
                self._apply(topic, index, registration)
                cost += _LOCAL_COST * (self._node_id in registration.replicas)
        if self._changed:
            self._worklist.wake()

    def iter_deleted(self) -> Iterator[Partition]:
        """Replicas of deleted topics, of which some still have to resign."""
        return (replica for _, replicas, _ in self._deleted for replica in replicas.values())

    def _drop_some(self, cost: int) -> int:
        """Drop replicas of deleted topics, and have the other logs looked at; returns the cost so far."""
        while self._deleted and cost < _TURN_COST:
            topic, replicas, indexes = self._deleted[0]
            index = next(indexes, None)
            if index is None:
                self._deleted.popleft()
            elif index in replicas:
                self._roles.resign(replicas[index], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                cost += _LOCAL_COST
            else:
                self._worklist.add((topic.name, index))
                cost += 1
        return cost

    def _configure_some(self, cost: int) -> int:
        """Apply the newest settings to replicas whose settings have changed; returns the cost so far."""
        if not self._reconfigured:
            return cost
        while self._reconfigured and cost < _TURN_COST:
            topic, partitions = next(iter(self._reconfigured.items()))
            config = self.log_config(topic)
            cost += _LOCAL_COST
            for partition in partitions:
                self._configure(partition, config, self._metadata.image)
                cost += _LOCAL_COST
                if cost >= _TURN_COST:
                    break
            else:
                del self._reconfigured[topic]
        if not self._reconfigured:
            self._fetchers.throttles_changed()
        return cost

    def _apply(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> None:
        partition, is_here = self._table.find(topic.name, index), self._node_id in registration.replicas
        if partition is not None and is_here and partition.topic_id == topic.id:
            self._roles.change_role(partition, registration)
            self._assignments.check((topic.name, index))
            return
        key, logs = (topic.name, index), self._logs
        if partition is not None:
            self._roles.drop(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif is_here or any(key in them for them in (logs.logs, logs.offline, logs.unavailable)):
            self._worklist.add(key)

    def log_config(self, topic: str) -> LogConfig:
        """The settings of a topic's logs, as of the newest image."""
        return build_log_config(self._overrides.of(self._metadata.image, topic), self._topic_defaults)

    def take_up(self, partition: Partition) -> None:
        """A log has been opened that the newest image assigns to this broker."""
        self._table.add(partition)
        image = self._metadata.image
        self._configure(partition, self.log_config(partition.topic), image)
        topic = image.topic_by_id(partition.topic_id)
        assert topic is not None, "checked by the reconciler, which opened it"
        self._roles.change_role(partition, topic.partitions[partition.index])

    def _reconfigure(self, topic: str) -> None:
        """The settings of a topic have changed: begin with its first replica, perhaps again."""
        if topic in self._table.by_name:
            self._reconfigured[topic] = self._replicas_of(topic)

    def _replicas_of(self, topic: str) -> Iterator[Partition]:
        """They may come and go meanwhile; new ones have the newest settings."""
        for partition in list(self._table.by_name.get(topic, {}).values()):
            if self._table.find(topic, partition.index) is partition:
                yield partition

    def _configure(self, partition: Partition, config: LogConfig, image: MetadataImage) -> None:
        partition.log.config = config
        partition.set_min_isr(config.min_insync_replicas, strict=image.elr_enabled)
        topic, index = image.topic_config(partition.topic), partition.index
        partition.set_throttled(
            as_leader=is_throttled(topic.get(LEADER_REPLICAS, ""), index, self._node_id),
            as_follower=is_throttled(topic.get(FOLLOWER_REPLICAS, ""), index, self._node_id),
        )

    def _reconfigure_broker_wide(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the number of fetchers and the broker-wide settings of topics, if they have changed."""
        changed: set[str] = {ELIGIBLE_LEADER_REPLICAS_VERSION} & delta.changed_features
        if any(concerns_broker(resource, self._node_id) for resource in delta.changed_configs):
            values = effective_dynamic_values(image, self._node_id)
            self._quotas.set_limits(values)
            self._fetchers.throttles_changed()
            fetchers = values.get(NUM_REPLICA_FETCHERS)
            self._fetchers.set_fetchers(self._static_fetchers if fetchers is None else int(fetchers))
            self._cordon(self._config.with_texts(values).cordoned_log_dirs)
            old = self._topic_defaults
            self._topic_defaults = broker_wide_topic_configs(image, self._broker_defaults, self._node_id)
            changed |= {
                name
                for name in old.keys() | self._topic_defaults.keys()
                if old.get(name) != self._topic_defaults.get(name)
            }
        if changed:
            for name in sorted(self._table.by_name):
                self._reconfigure(name)

    def _cordon(self, entries: tuple[str, ...]) -> None:
        """Keep new logs out of these directories. Another node may have accepted some that are not here."""
        if entries != self._cordoned:
            self._cordoned = entries
            objection = check_cordoned(entries, self._logs.dirs.paths)
            if objection is not None:
                logger.warning("%s: it is ignored", objection)
            self._logs.dirs.cordon(entries)


def _changed_partitions(delta: MetadataDelta) -> Iterator[tuple[Uuid, int]]:
    """The changed partitions, by topic name and index; found one at a time, for there may be a million."""
    for topic in delta.iter_changed_topics():
        for index in sorted(delta.changed_partitions.get(topic.id, ())):
            yield topic.id, index
