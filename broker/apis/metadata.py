"""Metadata (3), versions 0-13.

Brokers, topics and leaders from this broker's image. The answering broker names itself as controller: it
forwards whatever a controller must do, and no client waits for one that is gone. Topics by name or (from
version 10) by id; "all" is null, or the empty array in version 0. A missing topic is created where both the
broker and the client allow it, and answered once it is there. Fenced brokers are not listed.
"""

from __future__ import annotations

from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.dispatch import Api, Message
from pykraft.broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from pykraft.broker.services import BrokerServices
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import PartitionRegistration, TopicImage


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    cache = services.metadata
    wants_all = request.topics is None or (version == 0 and not request.topics)
    if wants_all:
        image = cache.image
        topics = [_topic(cache, context.listener, image.topics_by_id[image.topic_ids[name]])
                  for name in sorted(image.topic_ids)]  # fmt: skip
    else:
        may_create = services.config.auto_create_topics_enable and (
            version < 4 or request.allow_auto_topic_creation
        )
        topics = [
            await _asked_topic(services, context, asked, version, may_create) for asked in request.topics
        ]
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cache.cluster_id,
        controller_id=cache.node_id,
        topics=topics,
    )


async def _asked_topic(
    services: BrokerServices,
    context: RequestContext,
    asked: MetadataRequestTopic,
    version: int,
    may_create: bool,
) -> MetadataResponseTopic:
    cache = services.metadata
    if version >= 12 and asked.topic_id != ZERO_UUID:
        topic = cache.image.topic_by_id(asked.topic_id)
        if topic is None:
            return _missing(ErrorCode.UNKNOWN_TOPIC_ID, asked, version)
        return _topic(cache, context.listener, topic)
    if asked.name is None:
        return _missing(ErrorCode.INVALID_REQUEST, asked, version)
    topic = cache.image.topic(asked.name)
    if topic is None and may_create:
        try:
            topic = await create_topic(services, context, asked.name)
        except KafkaError as error:
            return _missing(error.code, asked, version)
    if topic is None:
        return _missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked, version)
    return _topic(cache, context.listener, topic)


def _missing(code: ErrorCode, asked: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    name = None if version >= 12 and asked.topic_id != ZERO_UUID else asked.name
    if name is None and version < 12:
        name = ""  # versions 10 and 11 take a null name in a request and cannot carry one in an answer
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def _brokers(cache: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    listed = []
    for broker in cache.brokers():
        endpoint = cache.endpoint(broker.id, listener)
        if endpoint is not None:
            listed.append(
                MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return listed


def _topic(cache: MetadataCache, listener: str, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(cache, listener, index, partition) for index, partition in enumerate(topic.partitions)
        ],
    )


def _partition(
    cache: MetadataCache, listener: str, index: int, partition: PartitionRegistration
) -> MetadataResponsePartition:
    error = ErrorCode.NONE
    if not partition.has_leader or not cache.is_usable(partition.leader):
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif cache.endpoint(partition.leader, listener) is None:
        error = ErrorCode.LISTENER_NOT_FOUND
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=partition.leader if error is ErrorCode.NONE else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=cache.offline_replicas(partition),
    )


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return MetadataResponse(
        error_code=error.code,
        topics=[_missing(error.code, asked, version) for asked in request.topics or []],
    )


API = Api(ApiKey.METADATA, 0, 13, handle, error_response)
