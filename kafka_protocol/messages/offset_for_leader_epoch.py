"""OffsetForLeaderEpoch (23): where a leader epoch ends in the log (KIP-101, KIP-320).

Asked by consumers that check their position after a leader change and by followers of older brokers. The
answer is the greatest epoch not above the one asked for, with its exclusive end offset, or -1/-1.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, int64, message, string, struct


@struct
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
