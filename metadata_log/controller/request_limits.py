"""Refuses requests that ask for too much at once, before any work for them.

As in Kafka, one request may create 10,000 partitions, and change as many configurations: POLICY_VIOLATION for
the whole of it beyond. Kafka counts the changes that it makes; here all that are named count. What is named
several times is refused by itself, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.image import MetadataImage

DEFAULT: Final = -1
"""A number of partitions, or of replicas, that the cluster's configuration gives."""

ITEMS_AT_ONCE: Final = 2_000
"""So many items are counted in one slice."""


def new_partition_count(config: ControllerConfig, topic: CreatableTopic) -> int:
    """How many partitions a topic to be created asks for; as in the request, so perhaps not positive."""
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions


def _added_partitions(image: MetadataImage, config: ControllerConfig, wanted: CreatePartitionsTopic) -> int:
    topic = image.topic(wanted.name)
    return 0 if topic is None else wanted.count - len(topic.partitions)


_Count = Callable[[MetadataImage, ControllerConfig, Any], int]

_COUNTED: Final[dict[type[Message], tuple[_Count, str]]] = {
    CreateTopicsRequest: (lambda image, config, topic: new_partition_count(config, topic), "partitions"),
    CreatePartitionsRequest: (_added_partitions, "partitions"),
    IncrementalAlterConfigsRequest: (lambda image, config, resource: len(resource.configs), "changes"),
    AlterConfigsRequest: (lambda image, config, resource: len(resource.configs), "changes"),
}


def refuse_excess(
    request: Message, items: Iterable[Any], image_of: Callable[[], MetadataImage], config: ControllerConfig
) -> Iterator[None]:
    """POLICY_VIOLATION if the items of the request ask for too much together. Yields after each slice."""
    if type(request) not in _COUNTED:
        return
    count_of, what = _COUNTED[type(request)]
    total = 0
    for number, item in enumerate(items, 1):
        total += max(0, count_of(image_of(), config, item))
        if total > config.max_records_per_request:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the request asks for more than {config.max_records_per_request} {what}",
            )
        if number % ITEMS_AT_ONCE == 0:
            yield None
