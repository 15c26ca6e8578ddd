"""DescribeProducers: the producers that a replica here knows, with their open transactions (KIP-664).

Every replica answers, so that an operator can compare a follower with its leader. A partition may have very
many producers: the answer is made over several turns of the event loop. One that is named twice gets
INVALID_REQUEST, so that a small request has no huge answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Final

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.logs.producer_state import ProducerEntry
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

_PRODUCERS_PER_TURN: Final = 2_000
_PARTITIONS_PER_TURN: Final = 200


async def handle(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest, version: int
) -> DescribeProducersResponse:
    seen: set[TopicPartition] = set()
    numbers = count(1)
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            try:
                if (topic.name, index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name}-{index} is asked for twice")
                seen.add((topic.name, index))
                partitions.append(await _describe(services, topic.name, index))
            except KafkaError as error:
                partitions.append(
                    PartitionResponse(
                        partition_index=index, error_code=error.code, error_message=error.message
                    )
                )
            if next(numbers) % _PARTITIONS_PER_TURN == 0:
                await services.tasks.sleep(0)
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _describe(services: BrokerServices, topic: str, index: int) -> PartitionResponse:
    check_topic_name(topic)
    if services.metadata.image.topic(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    producers = services.replicas.by_name(topic, index).producers
    if producers.is_behind:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the producers is being rebuilt")
    states = _states(producers.capture())
    described: list[ProducerState] = []
    while more := list(islice(states, _PRODUCERS_PER_TURN)):
        described += more
        if len(more) == _PRODUCERS_PER_TURN:
            await services.tasks.sleep(0)
    return PartitionResponse(partition_index=index, active_producers=described)


def _states(captured: dict[int, ProducerEntry]) -> Iterator[ProducerState]:
    for producer_id, entry in captured.items():
        yield ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
            last_timestamp=entry.timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.first_offset,
        )
