"""Metadata (3), versions 0-13.

Brokers, topics and leaders from this broker's image. The answering broker names itself as controller: it
forwards whatever a controller must do, and no client waits for one that is gone. Topics by name or (from
version 10) by id; "all" is null, or the empty array in version 0. A missing topic is created where both the
broker and the client allow it, and answered once it is there. Fenced brokers are not listed.

Topics are kept encoded (:mod:`pykraft.broker.topic_answers`); a long answer is put together in several turns
of the event loop, all of it from one image.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from pykraft.broker.metadata_cache import MetadataCache
from pykraft.broker.serving.api import Api, Message
from pykraft.broker.topic_answers import FLEXIBLE_FROM, encode_count, with_operations
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.encode_plan import encoder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage

_TURN_PARTITIONS = 4000
"""So many partitions are encoded in one turn of the event loop."""

_UNKNOWN_ID = int(ErrorCode.UNKNOWN_TOPIC_ID).to_bytes(2, "big")
"""How an encoded topic begins of which not even the name is known."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer whose topics are encoded already, at the version it will be asked for."""

    head: MetadataResponse
    topics: list[bytes]

    def encode(self, version: int) -> bytes:
        around = self.head.encode(version)
        # Behind the topics: authorized operations (8 to 10), an error code (13), tagged fields.
        tail = 4 * (8 <= version <= 10) + 2 * (version >= 13) + (version >= FLEXIBLE_FROM)
        at = len(around) - tail
        before = at - len(encode_count(0, version))
        return b"".join((around[:before], encode_count(len(self.topics), version), *self.topics, around[at:]))


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    cache = services.metadata
    wants_all = request.topics is None or (version == 0 and not request.topics)
    if wants_all:
        head = _head(cache, context.listener, request)
        topics = await _all_topics(cache, context.listener, version)
        return _Answer(head, await _maybe_with_operations(cache, topics, request, version))
    may_create = services.config.auto_create_topics_enable and (
        version < 4 or request.allow_auto_topic_creation
    )
    topics = [await _asked_topic(services, context, asked, version, may_create) for asked in request.topics]
    topics = await _maybe_with_operations(cache, topics, request, version)
    return _Answer(_head(cache, context.listener, request), topics)


def _head(cache: MetadataCache, listener: str, request: Message) -> MetadataResponse:
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=_brokers(cache, listener),
        cluster_id=cache.cluster_id,
        controller_id=cache.node_id,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )


async def _maybe_with_operations(
    cache: MetadataCache, topics: list[bytes], request: Message, version: int
) -> list[bytes]:
    """The topics, with the operations allowed on each if the request wants them; changed in place."""
    if version < 8 or not request.include_topic_authorized_operations:
        return topics
    for index, data in enumerate(topics):
        if not data.startswith(_UNKNOWN_ID):
            topics[index] = with_operations(data, version)
        if index % _TURN_PARTITIONS == _TURN_PARTITIONS - 1:
            await cache.let_others_run()
    return topics


async def _all_topics(cache: MetadataCache, listener: str, version: int) -> list[bytes]:
    image, names, view = cache.image, cache.topic_names(), cache.listener_view(listener)
    answers, topics, fresh = cache.topic_answers, [], 0
    for name in names:
        topic = image.topics_by_id[image.topic_ids[name]]
        data = answers.find(topic, view, listener, version)
        if data is None:
            data = answers.encode(topic, view, listener, version)
            fresh += len(topic.partitions)
        topics.append(data)
        fresh += 1
        if fresh >= _TURN_PARTITIONS:
            await cache.let_others_run()
            fresh = 0
    return topics


async def _asked_topic(
    services: BrokerServices,
    context: RequestContext,
    asked: MetadataRequestTopic,
    version: int,
    may_create: bool,
) -> bytes:
    cache = services.metadata
    if version >= 12 and asked.topic_id != ZERO_UUID:
        topic = cache.image.topic_by_id(asked.topic_id)
        if topic is None:
            return _encode_missing(ErrorCode.UNKNOWN_TOPIC_ID, asked, version)
        return _topic(cache, context.listener, topic, version)
    if asked.name is None:
        return _encode_missing(ErrorCode.INVALID_REQUEST, asked, version)
    topic = cache.image.topic(asked.name)
    if topic is None and may_create:
        try:
            topic = await create_topic(services, context, asked.name)
        except KafkaError as error:
            return _encode_missing(error.code, asked, version)
    if topic is None:
        return _encode_missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked, version)
    return _topic(cache, context.listener, topic, version)


def _missing(code: ErrorCode, asked: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    name = None if version >= 12 and asked.topic_id != ZERO_UUID else asked.name
    if name is None and version < 12:
        name = ""  # versions 10 and 11 take a null name in a request and cannot carry one in an answer
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def _encode_missing(code: ErrorCode, asked: MetadataRequestTopic, version: int) -> bytes:
    """As :func:`_missing`, encoded as an element of the answer's array of topics."""
    missing, out = _missing(code, asked, version), bytearray()
    encoder(MetadataResponseTopic, version, version >= FLEXIBLE_FROM)(missing, out)
    return bytes(out)


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


def _topic(cache: MetadataCache, listener: str, topic: TopicImage, version: int) -> bytes:
    return cache.topic_answers.encode(topic, cache.listener_view(listener), listener, version)


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return MetadataResponse(
        error_code=error.code,
        topics=[_missing(error.code, asked, version) for asked in request.topics or []],
    )


API = Api(ApiKey.METADATA, 0, 13, handle, error_response)
