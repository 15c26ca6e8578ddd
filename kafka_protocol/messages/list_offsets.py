"""ListOffsets (2): the offset that belongs to a time, or to an end of the log.

A negative timestamp asks for a special offset: -1 latest, -2 earliest, -3 the record with the greatest
timestamp (version 7), -4 earliest local (8), -5 latest tiered (9). Version 4 adds leader epochs both ways,
10 a time limit for look-ups in remote storage.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(2, versions="1-11", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
