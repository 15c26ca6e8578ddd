"""Metadata.

Brokers, topics and leaders from this broker's image; fenced brokers are not listed. The answering broker
names itself as controller: it forwards what only the controller can do, so that no client waits for a
controller that is down. Topics are requested by name or (from version 10) by id; "all" is null, or the empty
array in version 0. A missing topic is created if broker and client allow it, but the answer does not wait for
that: it is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka. Topics are kept encoded
(:mod:`pykraft.broker.metadata.topic_answers`); a long answer is built in several turns of the event loop,
from one image.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from pykraft.broker.metadata.cache import INTERNAL_TOPICS, MetadataCache
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.topics.topic_names import check_topic_name
from pykraft.metadata_log.image import TopicImage


def handle(
    services: BrokerServices, context: RequestContext, request: MetadataRequest, version: int
) -> Generator[None, None, MetadataResponse]:
    cache = services.metadata
    wants_operations = version >= 8 and request.include_topic_authorized_operations
    look = _Look(cache, context.listener, version, wants_operations)
    head = _head(cache, context.listener, request)
    if request.topics is None or (version == 0 and not request.topics):
        head.topics = yield from look.at_all(cache.topic_names())
        return head
    head.topics = yield from look.at(request.topics)
    may_create = version < 4 or request.allow_auto_topic_creation
    if look.missing and may_create and services.config.auto_create_topics_enable:
        services.creations.begin(context, look.missing)
    return head


def _head(cache: MetadataCache, listener: str, request: MetadataRequest) -> MetadataResponse:
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=_brokers(cache, listener),
        cluster_id=cache.cluster_id,
        controller_id=cache.node_id,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )


class _Look:
    """Finds topics in the newest image, encoded as elements of the answer's array of topics.

    ``missing``: the names that were asked for, that a topic could have, and that none has.
    """

    def __init__(self, cache: MetadataCache, listener: str, version: int, with_operations: bool) -> None:
        self._image = cache.image
        self._view = cache.listener_view(listener)
        self._answers = cache.topic_answers
        self._listener = listener
        self._version = version
        self._with_operations = with_operations
        self.missing: dict[str, None] = {}

    def at_all(self, names: Sequence[str]) -> Generator[None, None, EncodedElements]:
        image, topics = self._image, EncodedElements()
        for name in names:
            topics.append((yield from self._encode(image.topics_by_id[image.topic_ids[name]])))
            yield
        return topics

    def at(self, asked: Iterable[MetadataRequestTopic]) -> Generator[None, None, EncodedElements]:
        topics = EncodedElements()
        for one in asked:
            topics.append((yield from self._asked(one)))
            yield
        return topics

    def _encode(self, topic: TopicImage) -> Generator[None, None, bytes]:
        return self._answers.encode(topic, self._view, self._listener, self._version, self._with_operations)

    def _asked(self, asked: MetadataRequestTopic) -> Generator[None, None, bytes]:
        """The topic, or the error for it."""
        if self._version >= 12 and asked.topic_id != ZERO_UUID:
            topic = self._image.topic_by_id(asked.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif asked.name is None:
            topic, code = None, ErrorCode.INVALID_REQUEST
        else:
            topic = self._image.topic(asked.name)
            code = ErrorCode.NONE if topic is not None else _why_missing(asked.name)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.missing[asked.name] = None
        if topic is not None:
            return (yield from self._encode(topic))
        answer = _missing(asked, code, self._version)
        if self._with_operations and code is not ErrorCode.UNKNOWN_TOPIC_ID:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        return MetadataResponse.encode_part(answer, self._version)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _missing(asked: MetadataRequestTopic, code: ErrorCode, version: int) -> MetadataResponseTopic:
    name = None if code is ErrorCode.UNKNOWN_TOPIC_ID else asked.name
    if name is None and version < 12:
        name = ""  # versions 10 and 11 take a null name in a request and cannot carry one in an answer
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=asked.topic_id, is_internal=name in INTERNAL_TOPICS
    )


def build_error(
    request: MetadataRequest, version: int, error: KafkaError
) -> Generator[None, None, MetadataResponse]:
    """Every topic carries the error, also in version 13: to clients an unlisted topic does not exist."""
    answer = MetadataResponse(error_code=error.code, topics=[])
    for asked in request.topics or ():
        answer.topics.append(_missing(asked, error.code, version))
        yield
    return answer


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
