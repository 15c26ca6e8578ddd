"""The cluster as of one offset of the metadata log: brokers, topics, configurations, features.

Everything here is immutable; a later image shares what did not change. Controllers and brokers use the same
image, and only :mod:`pykraft.metadata_log.replay` makes a new one out of an old one. The methods here answer
questions about an image; they make no decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import field
from typing import Final

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import (
    CORDONED_LOG_DIRS_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
)
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    Endpoint,
    FeatureRange,
    LogsLost,
    RegisterControllerRecord,
)

NO_CONFIGS: Final[Map[str, str]] = Map()


def required_in_sync(min_isr: int, replicas: Sized) -> int:
    """How many replicas must be in sync: ``min.insync.replicas``, but never more than there are (KIP-966)."""
    return min(min_isr, len(replicas))


UNKNOWN_DIRECTORIES: Final = frozenset((MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY))
"""In the place of the directory of a replica whose directory is not known."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registered broker.

    ``epoch`` names the incarnation: the offset of its registration record. ``last_change_offset`` is the
    offset of the last record that touched the registration; a broker that has applied it knows its own state.
    ``logs_lost`` (:class:`LogsLost`) holds from the registration until the broker is unfenced.
    ``offline_log_dirs``: those of ``log_dirs`` that have failed since the registration.
    ``cordoned_log_dirs``: those that get no new replicas (KIP-1066).
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    last_change_offset: int = -1
    logs_lost: int = LogsLost.NOTHING
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def online_log_dirs(self) -> tuple[Uuid, ...]:
        return tuple(directory for directory in self.log_dirs if directory not in self.offline_log_dirs)

    @property
    def is_cordoned(self) -> bool:
        """Whether no directory that works may get new replicas."""
        return bool(self.log_dirs) and set(self.online_log_dirs) <= set(self.cordoned_log_dirs)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint of the named listener, or None if the broker has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The replicas of a partition, its ISR, its leader, and its epochs. ``leader`` is -1 for none.

    ``lost`` holds the replicas whose log was found damaged and that have not been in sync since.
    ``directories`` holds the log directories of the replicas, in their order; it is empty if none is known.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()

    def directory(self, broker_id: int) -> Uuid:
        """The log directory of a replica; UNASSIGNED if none is known, or the broker has no replica."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED_DIRECTORY
        return self.directories[self.replicas.index(broker_id)]

    def offline_in(self, online: frozenset[Uuid]) -> tuple[int, ...]:
        """The replicas whose directories are not among ``online`` (:func:`online_directories`)."""
        if online.issuperset(self.directories):
            return ()
        pairs = zip(self.replicas, self.directories, strict=True)
        return tuple(replica for replica, directory in pairs if directory not in online)

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; the index into ``partitions`` is the partition id.

    ``partitions`` is a tuple, or :class:`~pykraft.metadata_log.chunked.Chunked` if there are many.
    """

    name: str
    id: Uuid
    partitions: Sequence[PartitionRegistration] = ()

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All cluster metadata as of ``offset``, the last applied offset (-1: nothing), written in ``epoch``."""

    offset: int = -1
    epoch: int = 0
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    topics_by_id: Map[Uuid, TopicImage] = field(default_factory=Map)
    topic_ids: Map[str, Uuid] = field(default_factory=Map)
    metric_names: Map[str, str] = field(default_factory=Map)
    """The topics whose names other names may collide with, by :func:`metric_name`."""
    configs: Map[tuple[int, str], Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    controllers: Map[int, RegisterControllerRecord] = field(default_factory=Map)
    """The last registration of each controller."""
    next_producer_id: int = 0
    longest_session_ms: int = 0
    """The longest session timeout a lease may still be based on; 0 before the first active controller."""

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic_id: Uuid, index: int) -> PartitionRegistration | None:
        topic = self.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def resource_config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The values that were set for a resource, without defaults."""
        return self.configs.get((int(resource_type), name), NO_CONFIGS)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The values that were set for a topic, without defaults."""
        return self.resource_config(ConfigResourceType.TOPIC, name)

    @property
    def elr_enabled(self) -> bool:
        """Whether the cluster keeps eligible leader replicas (KIP-966)."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    @property
    def supports_cordoned_log_dirs(self) -> bool:
        """Whether the controller knows which log directories are cordoned (KIP-1066)."""
        return self.features.get(METADATA_VERSION, 0) >= CORDONED_LOG_DIRS_FROM

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active


def metric_name(name: str) -> str | None:
    """A topic's name as it is in metrics, where ``.`` and ``_`` are the same; None if it has neither."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def online_directories(brokers: Iterable[BrokerRegistration]) -> frozenset[Uuid]:
    """The log directories that work, and those of replicas whose directory is not known.

    Directory ids are unique among the brokers: the controller registers no broker with another's.
    """
    return UNKNOWN_DIRECTORIES.union(*(broker.online_log_dirs for broker in brokers))


EMPTY_IMAGE: Final = MetadataImage()
