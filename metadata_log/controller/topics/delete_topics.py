"""DeleteTopics: by name, or by id since version 6. Brokers delete the data when they apply the record."""

from __future__ import annotations

from collections import Counter

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, uuid_to_str
from pykraft.kafka_protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage, TopicImage
from pykraft.metadata_log.records import Record, RemoveTopicRecord


def handle_delete_topics(
    image: MetadataImage, config: ControllerConfig, request: DeleteTopicsRequest
) -> ControllerResult[DeleteTopicsResponse]:
    """Each topic is deleted or refused alone. One that is named twice in the same way has one result."""
    wanted = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    times_named = Counter(_resolve(image, state) for state in wanted)
    records: list[Record] = []
    results = []
    for state in {(state.name, state.topic_id): state for state in wanted}.values():
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        try:
            if not config.delete_topic_enable:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            topic = _find(image, state)
            if times_named[topic.id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named more than once")
            records.append(RemoveTopicRecord(topic.id))
            result.name, result.topic_id = topic.name, topic.id
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerResult(tuple(records), DeleteTopicsResponse(responses=results))


def _resolve(image: MetadataImage, state: DeleteTopicState) -> bytes:
    """The id of the topic; the same for a topic that is named once by name and once by id."""
    return state.topic_id if state.name is None else image.topic_ids.get(state.name, ZERO_UUID)


def _find(image: MetadataImage, state: DeleteTopicState) -> TopicImage:
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named both by name and by id")
    if state.name is not None:
        topic = image.topic(state.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {state.name}")
        return topic
    if state.topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named neither by name nor by id")
    topic = image.topic_by_id(state.topic_id)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {uuid_to_str(state.topic_id)}"
        )
    return topic
