"""OffsetFetch (9): read a group's committed offsets.

Versions up to 7 ask for one group at the top level; 8 has a list of groups. Version 2 allows a null topic
list, meaning all topics, 7 can require stable offsets (no open transaction), 9 adds member id and epoch, 10
topic ids. Both shapes live in these classes.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
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
class OffsetFetchRequest(Message):
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


@message(9, versions="1-10", flexible="6+")
class OffsetFetchResponse(Message):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "1-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
