"""DescribeProducers: the producers that a replica here knows, with their open transactions (KIP-664).

Every replica answers, so that an operator can compare a follower with its leader.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.topic_names import check_topic_name


async def handle(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(services, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(services: BrokerServices, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        if services.metadata.image.topic(topic) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        producers = services.replicas.by_name(topic, index).producers
        if producers.is_behind:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the producers is being rebuilt")
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp=entry.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.first_offset,
            )
            for producer_id, entry in producers.capture().items()
        ],
    )
