"""DescribeProducers: the producers that a replica here knows, with their open transactions (KIP-664).

Every replica answers, so that an operator can compare a follower with its leader. A partition may have very
many producers: the answer is made over several turns of the event loop. One that is named twice gets
INVALID_REQUEST, so that a small request has no huge answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.producers.state import Captured
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.topics.topic_names import check_topic_name


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest, version: int
) -> Generator[None, None, DescribeProducersResponse]:
    seen: dict[str, set[int]] = {}
    response = DescribeProducersResponse()
    for topic in request.topics:
        indexes = seen.setdefault(topic.name, set())
        partitions = EncodedElements()
        for index in topic.partition_indexes:
            try:
                if index in indexes:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name}-{index} is asked for twice")
                indexes.add(index)
                described = PartitionResponse(
                    partition_index=index,
                    active_producers=(yield from _describe(services, topic.name, index, version)),
                )
            except KafkaError as error:
                described = PartitionResponse(
                    partition_index=index, error_code=error.code, error_message=error.message
                )
            partitions.append(DescribeProducersResponse.encode_part(described, version))
            yield
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield
    return response


def _describe(
    services: BrokerServices, topic: str, index: int, version: int
) -> Generator[None, None, EncodedElements]:
    check_topic_name(topic)
    if services.metadata.image.topic(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    producers = services.replicas.by_name(topic, index).producers
    if producers.is_behind:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the producers is being rebuilt")
    described = EncodedElements()
    for state in _states(producers.items()):
        described.append(DescribeProducersResponse.encode_part(state, version))
        yield
    return described


def _states(captured: Captured) -> Iterator[ProducerState]:
    for producer_id, entry in captured:
        yield ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
            last_timestamp=entry.timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.first_offset,
        )
