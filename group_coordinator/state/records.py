"""The records of ``__consumer_offsets``, the state of a group coordinator, as values.

A record is a key and a value; a value of None deletes the key (a tombstone). These are Kafka's own record
types (0 to 8, and 16), so that tools that read the topic of a Kafka cluster can read ours. Their meaning is
defined in :mod:`pykraft.group_coordinator.replay`, their bytes in
:mod:`pykraft.group_coordinator.state.codec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.lazy_dataclass import dataclass

TopicPartition: TypeAlias = tuple[Uuid, int]
Partitions: TypeAlias = frozenset[TopicPartition]
"""A set of partitions by topic id. Frozen, so that the reconciliation is plain set algebra."""

NO_PARTITIONS: Partitions = frozenset()

AssignmentEpochs: TypeAlias = Mapping[TopicPartition, int]
"""For each partition that a member holds, the assignment epoch at which the member got it (KIP-1251)."""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[Uuid, list[int]]:
    """The same partitions grouped by topic, topics and partitions in ascending order."""
    grouped: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        grouped.setdefault(topic_id, []).append(partition)
    return grouped


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """``topic_id`` tells topics of the same name apart; zero if the record has none.

    ``expire_timestamp_ms`` is None unless an old client asked for its own retention time. The record version
    that holds it has no topic id.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicMemberValue:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A classic group as of its last completed rebalance."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[ClassicMemberValue, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """Never written, and ignored when read: since Kafka 4.1 the hash in the group's metadata replaces it."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """The join of a consumer group's member that speaks the classic protocol.

    ``supported_protocols``: names and embedded subscriptions, in the member's order of preference.
    """

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    """``classic`` is None for a member that speaks the consumer protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetAssignmentMetadataKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentMetadataValue:
    """``assignment_timestamp_ms``: when the assignment was computed (KIP-1263); 0 if that is unknown."""

    assignment_epoch: int
    assignment_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetAssignmentMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentMemberValue:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentValue:
    """``assignment_epochs`` has an entry for each partition that is assigned or pending revocation."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Partitions
    pending_revocation: Partitions
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegularExpressionKey:
    group_id: str
    regex: str


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression of a group matched, in order.

    ``version`` is the metadata offset and ``timestamp_ms`` the time at which it was resolved.
    """

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


RecordKey: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | TargetAssignmentMetadataKey
    | TargetAssignmentMemberKey
    | CurrentAssignmentKey
    | RegularExpressionKey
)
RecordValue: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | TargetAssignmentMetadataValue
    | TargetAssignmentMemberValue
    | CurrentAssignmentValue
    | ResolvedRegex
)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One change; ``value`` None deletes what ``key`` names."""

    key: RecordKey
    value: RecordValue | None
