"""ElectLeaders (43): trigger preferred (0) or unclean (1) leader elections."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int8, int16, int32, message, string, struct


@struct
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
