"""Requests of the members of a group; ``g`` where a test names no other."""

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TypedDict, Unpack

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

Offsets = Mapping[tuple[str, int], int]
"""By topic and partition."""


class JoinFields(TypedDict, total=False):
    """What tests set of a JoinGroup, besides the member and its protocols."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None
    protocol_type: str
    reason: str


class SyncFields(TypedDict, total=False):
    """What tests set of a SyncGroup."""

    group_id: str
    group_instance_id: str | None
    protocol_type: str
    protocol_name: str


class CommitFields(TypedDict, total=False):
    """What tests set of an OffsetCommit."""

    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int


class HeartbeatFields(TypedDict, total=False):
    """What tests set of a ConsumerGroupHeartbeat."""

    instance_id: str | None
    rack_id: str
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None


def topic_id(name: str, incarnation: int = 1) -> Uuid:
    return Uuid(name.encode().rjust(15, b"\0") + bytes([incarnation]))


def to_request(
    owned: Set[tuple[Uuid, int]] | None,
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions] | None:
    if owned is None:
        return None
    topics: dict[Uuid, list[int]] = {}
    for owned_id, partition in sorted(owned):
        topics.setdefault(owned_id, []).append(partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=owned_id, partitions=partitions)
        for owned_id, partitions in topics.items()
    ]


def consumer_heartbeat(
    member_id: str,
    epoch: int = 0,
    owned: Set[tuple[Uuid, int]] | None = None,
    *,
    group_id: str = "g",
    **fields: Unpack[HeartbeatFields],
) -> ConsumerGroupHeartbeatRequest:
    """A join has the fields that it must have."""
    values: HeartbeatFields = {}
    if epoch == 0:
        values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
        owned = owned or set()
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=to_request(owned),
        **(values | fields),
    )


def join_group(
    member_id: str = "",
    protocols: Mapping[str, bytes] = MappingProxyType({"range": b""}),
    **fields: Unpack[JoinFields],
) -> JoinGroupRequest:
    values: JoinFields = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
    }
    named = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()]
    return JoinGroupRequest(member_id=member_id, protocols=named, **(values | fields))


def sync_group(
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] = MappingProxyType({}),
    **fields: Unpack[SyncFields],
) -> SyncGroupRequest:
    values: SyncFields = {"group_id": "g"}
    given = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()]
    return SyncGroupRequest(
        member_id=member_id, generation_id=generation, assignments=given, **(values | fields)
    )


def heartbeat(
    member_id: str, generation: int, instance_id: str | None = None, *, group_id: str = "g"
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, member_id=member_id, generation_id=generation, group_instance_id=instance_id
    )


def leave_group(*members: MemberIdentity | str, group_id: str = "g") -> LeaveGroupRequest:
    """Members by their ids, or by what else names them."""
    named = [MemberIdentity(member_id=one) if isinstance(one, str) else one for one in members]
    return LeaveGroupRequest(group_id=group_id, members=named)


def commit_offsets(
    offsets: Offsets, *, group_id: str = "g", metadata: str = "", **fields: Unpack[CommitFields]
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, partition), offset in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    named = [
        OffsetCommitRequestTopic(name=name, topic_id=topic_id(name), partitions=partitions)
        for name, partitions in topics.items()
    ]
    return OffsetCommitRequest(group_id=group_id, topics=named, **fields)


def fetch_offsets(
    group_id: str = "g", *, member_id: str | None = None, epoch: int = -1, require_stable: bool = False
) -> OffsetFetchRequest:
    """All that the group has committed."""
    group = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=epoch, topics=None)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)
