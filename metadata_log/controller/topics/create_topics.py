"""CreateTopics: each topic is created or refused alone; all new topics are appended to the log as one batch.

A broker that forwards the request may have to try more than once: a controller that fails may have created
the topic without responding. The topic's id then identifies the request. It is made from the id of the
request, the number of the attempt and the topic's name, so the next attempt, at any controller, finds its own
topic in the log and gets the response of the first. No two attempts make the same id: a topic that was
deleted in between and created again is a different topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from hashlib import sha256
from typing import Final

from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid, make_uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.broker_configs import broker_wide_topic_configs
from pykraft.metadata_log.configs import check_topic_config, validate_topic_configs
from pykraft.metadata_log.controller.config import ControllerConfig, Rng
from pykraft.metadata_log.controller.elections import build_new_partitions
from pykraft.metadata_log.controller.request_limits import DEFAULT, new_partition_count
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.controller.topics.assignments import (
    check_assignments,
    place_automatically,
)
from pykraft.metadata_log.controller.topics.topic_names import check_collision, check_topic_name
from pykraft.metadata_log.image import MetadataImage, TopicImage, metric_name
from pykraft.metadata_log.records import ConfigRecord, Record, TopicRecord

MAX_ATTEMPTS: Final = 1000
"""The number of earlier attempts that are considered: more than the timeout of any request allows."""
_OWN_BYTES: Final = 10
"""How much of a topic id tells which attempt of which request created the topic."""


def handle_create_topics(
    image: MetadataImage,
    config: ControllerConfig,
    rng: Rng,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> InSlices[CreateTopicsResponse]:
    """Records and results for all topics of the request. Yields after each slice of new partitions."""
    topics = {topic.name: topic for topic in request.topics}
    times_named = Counter(topic.name for topic in request.topics)
    creation = _Creation(image, config, rng, context)
    results = []
    for name, topic in topics.items():
        try:
            if times_named[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named more than once")
            results.append((yield from creation.create(topic)))
        except KafkaError as error:
            results.append(
                CreatableTopicResult(
                    name=name, error_code=error.code, error_message=error.message, configs=None
                )
            )
    if request.validate_only:
        for result in results:
            result.topic_id = ZERO_UUID
    return ControllerResult(tuple(creation.records), CreateTopicsResponse(topics=results))


class _Creation:
    """One request in progress, with what it has decided to create so far."""

    def __init__(
        self, image: MetadataImage, config: ControllerConfig, rng: Rng, context: RequestContext
    ) -> None:
        self._image = image
        self._config = config
        self._rng = rng
        self._context = context
        self._broker_wide = broker_wide_topic_configs(image, config.topic_defaults)
        self._metric_names: dict[str, str] = {}
        self._described: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
        self.records: list[Record] = []

    def create(self, topic: CreatableTopic) -> Generator[None, None, CreatableTopicResult]:
        check_topic_name(topic.name)
        existing = self._image.topic(topic.name)
        if existing is not None:
            if self._is_own(existing):
                return self._created_before(existing)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} exists already")
        check_collision(topic.name, self._image.metric_names, self._metric_names)
        self._check_room(topic)  # before very many are looked at
        configs = _given_configs(topic)
        check_topic_config(configs, self._broker_wide)
        placements = self._place(topic)

        topic_id = self._choose_topic_id(topic.name)
        partitions = yield from build_new_partitions(self._image, topic_id, 0, placements)
        self.records.append(TopicRecord(topic.name, topic_id))
        for name in sorted(configs):
            self.records.append(ConfigRecord(ConfigResourceType.TOPIC, topic.name, name, configs[name]))
        self.records += partitions
        if (in_metrics := metric_name(topic.name)) is not None:
            self._metric_names[in_metrics] = topic.name
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._describe(configs),
        )

    def _place(self, topic: CreatableTopic) -> Iterator[tuple[int, ...]]:
        if topic.assignments:
            self._check_room(topic, len(topic.assignments))
            return self._place_as_given(topic)
        count = new_partition_count(self._config, topic)
        if count <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"the number of partitions must be positive, not {count}"
            )
        factor = topic.replication_factor
        if factor == DEFAULT:
            factor = self._config.default_replication_factor
        if factor <= 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor must be positive, not {factor}"
            )
        self._check_room(topic, count)
        return place_automatically(self._image, count, factor, self._rng)

    def _place_as_given(self, topic: CreatableTopic) -> Iterator[tuple[int, ...]]:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "with replica assignments the number of partitions and the replication factor must be -1",
            )
        by_index = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
        if sorted(by_index) != list(range(len(topic.assignments))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assigned partitions are not 0, 1, 2 … without gaps"
            )
        return check_assignments(self._image, [by_index[index] for index in range(len(by_index))])

    def _check_room(self, topic: CreatableTopic, partition_count: int = 1) -> None:
        limit = self._config.max_records_per_request
        if len(self.records) + partition_count + len(topic.configs) + 1 > limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the request needs more than {limit} metadata records at once"
            )

    def _choose_topic_id(self, name: str) -> Uuid:
        context = self._context
        topic_id = None
        if context.request_id:
            topic_id = make_topic_id(context.request_id, context.attempt, name, self._image.offset)
        while topic_id is None:
            topic_id = make_uuid(self._rng.randbytes(16))
        return topic_id

    def _is_own(self, topic: TopicImage) -> bool:
        """Whether an earlier attempt of this request created the topic."""
        context, own = self._context, topic.id[:_OWN_BYTES]
        return bool(context.request_id) and any(
            (make_topic_id(context.request_id, attempt, topic.name) or b"")[:_OWN_BYTES] == own
            for attempt in range(min(context.attempt, MAX_ATTEMPTS))
        )

    def _created_before(self, topic: TopicImage) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.id,
            error_message=None,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            configs=self._describe(self._image.topic_config(topic.name)),
        )

    def _describe(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """One list for all topics with the same values: a request may create thousands."""
        key = tuple(sorted(overrides.items()))
        described = self._described.get(key)
        if described is None:
            described = _describe_configs(overrides, self._image, self._config.topic_defaults)
            self._described[key] = described
        return described


def make_topic_id(request_id: bytes, attempt: int, name: str, offset: int = -1) -> Uuid | None:
    """The id of a topic that this attempt of a request creates; None if the id is reserved.

    Its beginning tells whose topic it is. Its end is the offset of the image that the decision rests on: an
    attempt that arrives a second time, after the topic was deleted, creates another topic.
    """
    text = b"%d:%b%d:%b" % (len(request_id), request_id, attempt, name.encode())
    return make_uuid(sha256(text).digest()[:_OWN_BYTES] + (offset + 1).to_bytes(16 - _OWN_BYTES, "big"))


def _given_configs(topic: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for entry in topic.configs:
        if entry.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"configuration {entry.name} has no value")
        configs[entry.name] = entry.value
    validate_topic_configs(configs)
    return configs


def _describe_configs(
    overrides: Mapping[str, str], image: MetadataImage, static: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    broker_wide = broker_wide_topic_configs(image, static)
    for_all_brokers = broker_wide_topic_configs(image, {})
    described = []
    for name, key in TOPIC_KEYS.items():
        if key.is_internal and name not in overrides:
            continue
        value = overrides.get(name, broker_wide.get(name, key.default or ""))
        if name in overrides:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        elif name in for_all_brokers:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        elif name in broker_wide:
            source = ConfigSource.STATIC_BROKER_CONFIG
        else:
            source = ConfigSource.DEFAULT_CONFIG
        described.append(CreatableTopicConfigs(name=name, value=value, config_source=source))
    return described
