"""Metadata.

Brokers, topics and leaders from this broker's image. The answering broker names itself as controller: it
forwards what only the controller can do, so that no client waits for a controller that is down. Topics are
requested by name or (from version 10) by id; "all" is null, or the empty array in version 0. A missing topic
is created if both the broker and the client allow it, and answered once it is in the image. Fenced brokers
are not listed.

Topics are kept encoded (:mod:`pykraft.broker.topic_answers`); a long answer is built in several turns of the
event loop, all of it from one image.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from pykraft.broker.metadata_cache import MetadataCache
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import EncodedElements
from pykraft.metadata_log.image import TopicImage

_TURN_PARTITIONS = 4000
"""How many partitions are encoded in one turn of the event loop."""


async def handle(
    services: BrokerServices, context: RequestContext, request: MetadataRequest, version: int
) -> MetadataResponse:
    cache = services.metadata
    if request.topics is None or (version == 0 and not request.topics):
        head = _head(cache, context.listener, request)
        head.topics = await _all_topics(cache, context.listener, version, _wants_operations(request, version))
        return head
    topics = EncodedElements()
    for asked in request.topics:
        topics.append(await _asked_topic(services, context, request, asked, version))
    head = _head(cache, context.listener, request)
    head.topics = topics
    return head


def _head(cache: MetadataCache, listener: str, request: MetadataRequest) -> MetadataResponse:
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=_brokers(cache, listener),
        cluster_id=cache.cluster_id,
        controller_id=cache.node_id,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )


def _wants_operations(request: MetadataRequest, version: int) -> bool:
    """Whether the request asks for the operations that are allowed on each topic."""
    return version >= 8 and request.include_topic_authorized_operations


async def _all_topics(
    cache: MetadataCache, listener: str, version: int, with_operations: bool
) -> EncodedElements:
    image, names, view = cache.image, cache.topic_names(), cache.listener_view(listener)
    answers, topics, fresh = cache.topic_answers, EncodedElements(), 0
    for name in names:
        topic = image.topics_by_id[image.topic_ids[name]]
        data = answers.find(topic, view, listener, version, with_operations)
        if data is None:
            data = answers.encode(topic, view, listener, version, with_operations)
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
    request: MetadataRequest,
    asked: MetadataRequestTopic,
    version: int,
) -> bytes:
    """The topic, or the error for it, as an element of the answer's array of topics."""
    cache = services.metadata
    if version >= 12 and asked.topic_id != ZERO_UUID:
        topic = cache.image.topic_by_id(asked.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    elif asked.name is None:
        topic, code = None, ErrorCode.INVALID_REQUEST
    else:
        topic, code = await _named_topic(services, context, request, asked.name, version)
    with_operations = _wants_operations(request, version)
    if topic is not None:
        view = cache.listener_view(context.listener)
        return cache.topic_answers.encode(topic, view, context.listener, version, with_operations)
    missing = _missing(asked, code, version)
    if with_operations and code is not ErrorCode.UNKNOWN_TOPIC_ID:
        missing.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse.encode_part(missing, version)


def _missing(asked: MetadataRequestTopic, code: ErrorCode, version: int) -> MetadataResponseTopic:
    name = None if code is ErrorCode.UNKNOWN_TOPIC_ID else asked.name
    if name is None and version < 12:
        name = ""  # versions 10 and 11 take a null name in a request and cannot carry one in an answer
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def build_error(request: MetadataRequest, version: int, error: KafkaError) -> MetadataResponse:
    """Every topic carries the error, also in version 13: to clients an unlisted topic does not exist."""
    topics = [_missing(asked, error.code, version) for asked in request.topics or ()]
    return MetadataResponse(error_code=error.code, topics=topics)


async def _named_topic(
    services: BrokerServices, context: RequestContext, request: MetadataRequest, name: str, version: int
) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, created if it is missing and may be created; otherwise the reason why there is none."""
    topic = services.metadata.image.topic(name)
    may_create = version < 4 or request.allow_auto_topic_creation
    if topic is None and may_create and services.config.auto_create_topics_enable:
        try:
            topic = await create_topic(services, context, name)
        except KafkaError as error:
            return None, error.code
    return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
