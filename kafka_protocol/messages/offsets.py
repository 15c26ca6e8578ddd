"""Messages that store, read and delete the offsets of groups."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    response_to,
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
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """OffsetCommit (8): store a group's offsets.

    From version 9 ``generation_id_or_member_epoch`` may be a KIP-848 member epoch and STALE_MEMBER_EPOCH an
    answer. Version 6 adds the leader epoch of the committed offset, 7 the static member, 10 topic ids instead
    of names. The retention time of versions 2 to 4 is ignored.
    """

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


@response_to(OffsetCommitRequest)
class OffsetCommitResponse(Message):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@struct
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@struct
class OffsetFetchRequestTopics:
    name: str = string("8-9")
    topic_id: Uuid = uuid("10+")
    partition_indexes: list[int] = array("int32")


@struct
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


@message(9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """OffsetFetch (9): read a group's committed offsets.

    Versions up to 7 ask for one group at the top level; 8 has a list of groups. Version 2 allows a null topic
    list, meaning all topics, 7 can require stable offsets (no open transaction), 9 adds member id and epoch,
    10 topic ids. Both shapes live in these classes.
    """

    group_id: str = string("1-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "1-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopics:
    name: str = string("8-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@struct
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


@response_to(OffsetFetchRequest)
class OffsetFetchResponse(Message):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "1-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(47, versions="0")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """OffsetDelete (47): delete a group's offsets of single partitions. Never flexible."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response_to(OffsetDeleteRequest)
class OffsetDeleteResponse(Message):
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """TxnOffsetCommit (28): store a group's offsets as part of a transaction.

    Version 3 adds the group's member and generation for fencing (KIP-447); 5 enrols the offsets by itself
    (KIP-890).
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@response_to(TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
