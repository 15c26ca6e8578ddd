"""OffsetForLeaderEpoch (23), versions 2-4.

Where a leader epoch ends in this leader's log: the greatest epoch not above the one asked for and its
exclusive end, or -1/-1 where that is not known (KIP-101, KIP-279, KIP-320). Consumers check their position
with it after a leader change; the epoch they believe current must be the leader's.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.serving.api import Api, Message
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pykraft.kafka_protocol.request_context import RequestContext


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    services.replicas.refuse_if_fenced()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(services.replicas, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replicas.by_name(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=error.code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    2,
    4,
    handle,
    error_response,
    partitions=lambda request: (
        (topic.topic, asked.partition) for topic in request.topics for asked in topic.partitions
    ),
)
