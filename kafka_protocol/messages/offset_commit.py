"""OffsetCommit (8): store a group's offsets.

From version 9 ``generation_id_or_member_epoch`` may be a KIP-848 member epoch and STALE_MEMBER_EPOCH an
answer. Version 6 adds the leader epoch of the committed offset, 7 the static member, 10 topic ids instead
of names. The retention time of versions 2 to 4 is ignored.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = string("2-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Message):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    retention_time_ms: int = int64("2-4", default=-1)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    name: str = string("2-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(8, versions="2-10", flexible="8+")
class OffsetCommitResponse(Message):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
