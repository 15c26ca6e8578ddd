"""CreatePartitions: raise a topic's partition count; existing partitions are not moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pykraft.metadata_log.controller.config import ControllerConfig, Rng
from pykraft.metadata_log.controller.elections import build_new_partitions
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.controller.topics.assignments import (
    check_assignments,
    place_automatically,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import PartitionRecord, Record


def handle_create_partitions(
    image: MetadataImage, config: ControllerConfig, rng: Rng, request: CreatePartitionsRequest
) -> InSlices[CreatePartitionsResponse]:
    """Each topic is changed or refused alone. Yields after each slice of new partitions."""
    topics = {topic.name: topic for topic in request.topics}
    times_named = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    results = []
    for name, topic in topics.items():
        result = CreatePartitionsTopicResult(name=name)
        try:
            if times_named[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named more than once")
            records += yield from _grow(image, topic, config.max_records_per_request - len(records), rng)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerResult(tuple(records), CreatePartitionsResponse(results=results))


def _grow(
    image: MetadataImage, wanted: CreatePartitionsTopic, room: int, rng: Rng
) -> Generator[None, None, list[PartitionRecord]]:
    topic = image.topic(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name}")
    present = len(topic.partitions)
    if wanted.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {wanted.name} has {present} partitions; {wanted.count} would not increase them",
        )
    added = wanted.count - present
    if added > room:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "the request creates too many partitions at once")
    if wanted.assignments is None:
        placements = place_automatically(image, added, topic.replication_factor, rng)
    elif len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partitions would be added, but the request assigns {len(wanted.assignments)}",
        )
    else:
        given = [assignment.broker_ids for assignment in wanted.assignments]
        placements = check_assignments(image, given, topic.replication_factor)
    return (yield from build_new_partitions(image, topic.id, present, placements))
