"""DescribeTopicPartitions.

Topics in order of their names, with at most ``response_partition_limit`` partitions (never more than 2000) in
one answer; the cursor names the first partition that did not fit. A request that names no topics asks for all
of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from itertools import islice

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import TOPIC_OPERATIONS
from pykraft.broker.metadata.cache import INTERNAL_TOPICS, MetadataCache
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import PartitionRegistration

MAX_PARTITIONS = 2000
MAX_ITEMS = 20_000
"""Topics of one request. They are sorted in one turn; clients name all that they want again for each page."""


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeTopicPartitionsRequest, version: int
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    if request.response_partition_limit <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "response_partition_limit must be positive")
    cache, image = services.metadata, services.metadata.image
    asked = sorted(topic.name for topic in request.topics)
    names = asked or cache.topic_names()
    first = start = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's partition index is negative")
        first = bisect_left(names, request.cursor.topic_name)
        if first < len(names) and names[first] == request.cursor.topic_name:
            start = request.cursor.partition_index
    room = min(request.response_partition_limit, MAX_PARTITIONS)
    answer = DescribeTopicPartitionsResponse()
    for name in islice(names, first, None):
        yield
        topic = image.topic(name)
        if topic is None:
            answer.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        if room == 0:
            answer.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        shown = topic.partitions[start : start + room]
        described = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
        for index, partition in enumerate(shown, start):
            described.partitions.append(_partition(cache, index, partition))
            yield
        answer.topics.append(described)
        room -= len(shown)
        if start + len(shown) < len(topic.partitions):
            answer.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=start + len(shown)
            )
            break
        start = 0
    return answer


def _partition(
    cache: MetadataCache, index: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    led = partition.has_leader and cache.is_usable(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if led else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=cache.offline_replicas(partition),
    )
