"""Requests of brokers to the controller, with their responses. Clients' requests are Kafka's own messages."""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.records import Endpoint, FeatureRange


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest:
    """A broker process registers; ``incarnation_id`` is new with every start of the process.

    ``dead_incarnation_secrets``: the secrets of earlier processes of the broker that have ended
    (:mod:`pykraft.metadata_log.incarnations`).
    """

    cluster_id: str
    broker_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[Uuid, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    previous_broker_epoch: int = -1
    dead_incarnation_secrets: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegisterControllerRequest:
    """A controller registers its feature levels, its session timeout, and its endpoints for clients.

    ``session_timeout_ms`` 0: not given.
    """

    cluster_id: str
    controller_id: int
    features: tuple[FeatureRange, ...]
    session_timeout_ms: int = 0
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    """A broker's heartbeat; ``current_metadata_offset`` is the last offset in the broker's image.

    ``offline_log_dirs``: the directories that have failed since the broker registered.
    ``cordoned_log_dirs``: those that get no new replicas; None: the broker does not know yet.
    """

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """``lease_ms``: for this time after it sent the heartbeat the broker is sure not to be fenced, and
    (:mod:`~pykraft.metadata_log.controller.leadership`) to lead its partitions, or to have led them until
    less than a session before.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A proposed member of an ISR; epoch -1 means the leader does not know it."""

    broker_id: int
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionIsrChange:
    """A leader proposes a new ISR; it has seen the partition at these two epochs."""

    topic_id: Uuid
    index: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionIsrChange, ...]


@dataclass(frozen=True, slots=True)
class PartitionIsrResult:
    """The partition's state after the request, or an error."""

    topic_id: Uuid
    index: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    partitions: tuple[PartitionIsrResult, ...]


@dataclass(frozen=True, slots=True)
class LostReplica:
    """A replica without its log. ``leader_epoch``: that of the partition when the broker sent this report;
    None from a broker of an earlier version, which does not send it.
    """

    topic_id: Uuid
    index: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class ReportLostReplicasRequest:
    """A broker found the logs of these replicas of its own damaged and no longer serves them."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[LostReplica, ...]


@dataclass(frozen=True, slots=True)
class LostReplicaResult:
    """The partition epoch from which on the replica is out of ISR and ELR, or an error."""

    topic_id: Uuid
    index: int
    error: ErrorCode = ErrorCode.NONE
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ReportLostReplicasResponse:
    partitions: tuple[LostReplicaResult, ...]


@dataclass(frozen=True, slots=True)
class ReplicaDirectory:
    """The log directory of a replica; LOST if it failed before the controller knew it."""

    topic_id: Uuid
    index: int
    directory: Uuid


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsRequest:
    """A broker says in which directories its replicas are (KIP-858)."""

    broker_id: int
    broker_epoch: int
    assignments: tuple[ReplicaDirectory, ...]


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse:
    """The outcome of each assignment, in the order of the request."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """Ids ``[start, start + length)`` belong to this broker alone, forever."""

    start: int
    length: int
