"""IncrementalAlterConfigs for topics: set, delete, append to or subtract from single keys (KIP-339)."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import ConfigRecord, ConfigResourceType, Record
from pykraft.metadata_log.topic_configs import parse_topic_config, topic_config_key
from pykraft.runtime.properties import ConfigType


class ConfigOperation(IntEnum):
    """What to do with one key, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle_incremental_alter_configs(
    image: MetadataImage, config: ControllerConfig, request: IncrementalAlterConfigsRequest
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Each resource is changed as a whole or refused as a whole; no records when only validating."""
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    records: list[Record] = []
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            records += _alter(image, config, resource)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    kept = () if request.validate_only else tuple(records)
    return ControllerResult(kept, IncrementalAlterConfigsResponse(responses=responses))


def _alter(
    image: MetadataImage, config: ControllerConfig, resource: AlterConfigsResource
) -> list[ConfigRecord]:
    if resource.resource_type != ConfigResourceType.TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"only topic configurations can be altered, not resource type {resource.resource_type}",
        )
    topic = resource.resource_name
    if topic not in image.topic_ids:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    names = [entry.name for entry in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a configuration key is named more than once")
    overrides = image.topic_config(topic)
    records = []
    for entry in sorted(resource.configs, key=lambda entry: entry.name):
        key = topic_config_key(entry.name)
        default = config.topic_defaults.get(entry.name, key.default or "")
        value = _new_value(entry, overrides.get(entry.name, default), key.type is ConfigType.LIST)
        if value is not None:
            parse_topic_config(entry.name, value)
        if value != overrides.get(entry.name):
            records.append(ConfigRecord(ConfigResourceType.TOPIC, topic, entry.name, value))
    return records


def _new_value(entry: AlterableConfig, current: str, is_list: bool) -> str | None:
    """The key's value after the operation; None for back to the default."""
    try:
        operation = ConfigOperation(entry.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"unknown operation {entry.config_operation} on {entry.name}"
        ) from None
    if operation is ConfigOperation.DELETE:
        return None
    if entry.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{operation.name} of {entry.name} needs a value")
    if operation is ConfigOperation.SET:
        return entry.value
    if not is_list:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{entry.name} is not a list: it can only be set or deleted",
        )
    items, named = _split(current), _split(entry.value)
    if operation is ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)


def _split(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]
