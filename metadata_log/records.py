"""The records of the metadata log: the only way cluster metadata ever changes.

Names are Kafka's. A field that is ``None`` in a *change* record means "unchanged". The effect of a record is
in :mod:`pykraft.metadata_log.replay`, its bytes are in :mod:`pykraft.metadata_log.codec`; this file holds the
values only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass

NO_LEADER: Final = -1
MIGRATING_DIRECTORY: Final = Uuid(bytes(16))
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\1")
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\2")
"""KIP-858's reserved ids in the place of a replica's directory: not known, not chosen yet, and failed before
it was known. The first two say nothing against the replica.
"""
OWN_OFFSET: Final = -1
"""In the place of a registration's epoch or last change: the offset of the registration record itself."""


class ConfigResourceType(IntEnum):
    """The kind of resource a configuration belongs to, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LogsLost(IntEnum):
    """A broker's possible losses of its logs since its previous incarnation."""

    NOTHING = 0
    """The broker had flushed everything when it stopped."""
    TAIL = 1
    """The broker stopped without a flush: unflushed records may be lost."""
    ALL = 2
    """A log directory is missing."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a listener of a broker or a controller."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a broker or a controller can run."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A broker process registers. It stays fenced until it has caught up.

    ``logs_lost`` (:class:`LogsLost`) applies until the broker is unfenced: by then every partition has been
    changed accordingly.
    ``broker_epoch`` is :data:`OWN_OFFSET` for a new incarnation; an incarnation that registers again keeps
    the epoch it has. ``last_change_offset`` is :data:`OWN_OFFSET` but in a snapshot, where records have no
    offsets of their own. ``offline_log_dirs``: those of ``log_dirs`` that have failed since.
    ``cordoned_log_dirs``: those that get no new replicas (KIP-1066).
    """

    broker_id: int
    incarnation_id: Uuid
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    logs_lost: int = LogsLost.NOTHING
    last_change_offset: int = OWN_OFFSET
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """A broker is removed from the cluster."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """A broker is fenced, unfenced, begins a controlled shutdown, has failed log directories, or others that
    get no new replicas.

    ``offline_log_dirs``: all that have failed since it registered. ``cordoned_log_dirs``: all as of now.
    """

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    offline_log_dirs: tuple[Uuid, ...] | None = None
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic is created; its partitions follow in the same batch."""

    name: str
    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition's whole state. ``directories``: in the order of replicas (KIP-858); empty if unknown."""

    partition_id: int
    topic_id: Uuid
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    lost_replicas: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A change of a partition. Raises the partition epoch, and the leader epoch if it names a leader.

    ``directories``: of the replicas after the change, in their order. If it is None, replicas that stay keep
    theirs, and new ones have none yet.
    """

    partition_id: int
    topic_id: Uuid
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    lost_replicas: tuple[int, ...] | None = None
    directories: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic is deleted, with its partitions and its configuration."""

    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One configuration key of one resource; ``value`` None resets the key to its default."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The level the whole cluster runs a feature at; 0 switches it off."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A block of producer ids was allocated to a broker; the next block starts at ``next_producer_id``."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    """A controller registers the feature levels it can run and its endpoints, and again when these change.

    ``endpoints`` are the listeners on which it answers Kafka's protocol (KIP-919); the addresses of the
    quorum are in its voter records.
    """

    controller_id: int
    features: tuple[FeatureRange, ...]
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionTimeoutRecord:
    """The longest session timeout that leases of brokers may be based on (:mod:`.controller.leadership`)."""

    longest_ms: int


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Changes nothing but the offset."""


Record = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | RegisterControllerRecord
    | SessionTimeoutRecord
    | NoOpRecord
)
