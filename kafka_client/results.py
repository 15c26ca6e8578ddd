"""The values the admin client takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Self

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigSource, UpgradeType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Counts None: by default. ``assignments``: replicas by partition, instead of both."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one item of a request. ``error`` None: done."""

    name: str
    error: KafkaError | None = None

    def check(self) -> Self:
        """Raise the error if there is one."""
        if self.error is not None:
            raise self.error
        return self


@dataclass(frozen=True, slots=True)
class CreatedTopic(Outcome):
    """``topic_id`` and counts are None if the broker's version does not return them."""

    topic_id: Uuid | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: Uuid
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """``elr`` and ``last_known_elr`` are None if the broker does not return them (KIP-966)."""

    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """A replica in a log directory. ``is_future``: the copy of one that is being moved there."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker. ``error`` NONE: it works. The sizes of its volume are -1 if unknown."""

    path: str
    error: ErrorCode
    replicas: tuple[LogDirReplica, ...]
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """``controller_id`` is where clients send admin requests: with KRaft, any live broker."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer as its leader sees it. Timestamps are wall-clock milliseconds, None if unknown."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """``nodes``: the addresses of each voter's listeners, by node id and listener name."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The outcome of one partition of a request. ``error`` None: done."""

    partition: TopicPartition
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress: the replicas now, and which of them are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level to finalize; 0 switches the feature off."""

    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """The levels that this broker supports, and the cluster's; 0 if a feature is not supported or is off."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int


@dataclass(frozen=True, slots=True)
class ClusterFeatures:
    """``epoch``: the offset in the metadata log up to which the finalized levels are current."""

    epoch: int
    features: tuple[FeatureDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """``state`` and ``type`` are empty if the broker's version does not return them."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """``member_epoch`` and ``target_assignment`` exist in consumer groups (KIP-848) only.

    ``upgraded``: whether it uses the consumer protocol; None in classic groups, and if the broker does not
    tell.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Mapping[str, tuple[int, ...]]
    member_epoch: int | None = None
    target_assignment: Mapping[str, tuple[int, ...]] | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rack: str | None = None
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member by its id, or a static member by its instance id."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """``type`` is ``consumer`` (KIP-848) or ``classic``; epochs exist in the former only."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerDescription
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """``synonyms``: (name, value, source) in order of precedence, the effective value first."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """``state`` Empty, Ongoing, PrepareCommit, CompleteCommit, PrepareAbort, CompleteAbort."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """``start_time_ms`` None: none is open. ``partitions``: written to; once decided, without a marker."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a replica knows it.

    ``coordinator_epoch`` None: none of its transactions has ended here. ``transaction_start_offset`` None:
    none is open here.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """A transaction in one partition, to be aborted there whatever its coordinator knows."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        """As in the messages of Kafka's admin client."""
        return (
            f"AbortTransactionSpec(topicPartition={self.partition}, producerId={self.producer_id}, "
            f"producerEpoch={self.producer_epoch}, coordinatorEpoch={self.coordinator_epoch})"
        )
