"""IncrementalAlterConfigs (KIP-339) and the older AlterConfigs, which replaces all values of a resource.

Each resource is changed or refused as a whole, independently of the others. Only a real change becomes a
record. A key that is set may be reset to its default even if the key is no longer known; everything else is
checked. Kafka stores any name for a broker, if it is not one of its own that only a start reads; here an
unknown name is refused, since it is a mistake that would otherwise go unnoticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from pykraft.configuration.keys import ConfigError, ConfigKey, ConfigType, split_list
from pykraft.kafka_protocol.enums import ConfigOperation
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import configs
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.config_resources import ConfigResource, find_config_resource
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import ConfigRecord

_Entry = configs.AlterableConfig | configs.LegacyAlterableConfig

MAX_VALUE_CHARS: Final = 32_767
"""The longest value accepted, Kafka's longest plain string: every node keeps all values in memory."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One resource of a request. ``replaces_all``: keys that are not named get their defaults again."""

    resource_type: int
    resource_name: str
    entries: Sequence[_Entry]
    replaces_all: bool


def handle_incremental_alter_configs(
    image: MetadataImage, config: ControllerConfig, request: configs.IncrementalAlterConfigsRequest
) -> ControllerResult[configs.IncrementalAlterConfigsResponse]:
    """Change single keys."""
    wanted = [_Wanted(it.resource_type, it.resource_name, it.configs, False) for it in request.resources]
    records, answers = _answer_each(image, config, wanted)
    return ControllerResult(records, configs.IncrementalAlterConfigsResponse(responses=answers))


def handle_alter_configs(
    image: MetadataImage, config: ControllerConfig, request: configs.AlterConfigsRequest
) -> ControllerResult[configs.AlterConfigsResponse]:
    """Replace all keys of each resource."""
    wanted = [_Wanted(it.resource_type, it.resource_name, it.configs, True) for it in request.resources]
    records, answers = _answer_each(image, config, wanted)
    return ControllerResult(records, configs.AlterConfigsResponse(responses=answers))


def _answer_each(
    image: MetadataImage, config: ControllerConfig, wanted: Sequence[_Wanted]
) -> tuple[tuple[ConfigRecord, ...], list[configs.AlterConfigsResourceResponse]]:
    records, errors = _alter_each(image, config, wanted)
    answers = [
        configs.AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(wanted, errors, strict=True)
    ]
    return records, answers


def _alter_each(
    image: MetadataImage, config: ControllerConfig, resources: Sequence[_Wanted]
) -> tuple[tuple[ConfigRecord, ...], list[KafkaError | None]]:
    """The records of the accepted changes, and the error of each refused resource."""
    times_named = Counter((wanted.resource_type, wanted.resource_name) for wanted in resources)
    records: list[ConfigRecord] = []
    errors: list[KafkaError | None] = []
    for wanted in resources:
        try:
            if times_named[wanted.resource_type, wanted.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            resource = find_config_resource(image, config, wanted.resource_type, wanted.resource_name)
            records += _alter(resource, wanted)
            errors.append(None)
        except KafkaError as error:
            errors.append(error)
    return tuple(records), errors


def _alter(resource: ConfigResource, wanted: _Wanted) -> list[ConfigRecord]:
    names = Counter(entry.name for entry in wanted.entries)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"configuration {twice[0]} is named more than once")
    changes = {entry.name: _new_value(resource, entry) for entry in wanted.entries}
    if wanted.replaces_all:
        changes |= {name: None for name in resource.overrides if name not in changes}
    after = {**resource.overrides, **changes}
    resource.check({name: value for name, value in after.items() if value is not None})
    return [
        ConfigRecord(resource.kind, resource.name, name, value)
        for name, value in sorted(changes.items())
        if value != resource.overrides.get(name)
    ]


def _new_value(resource: ConfigResource, entry: _Entry) -> str | None:
    """The key's value after the operation; None for its default."""
    operation = _operation(entry)
    if operation is ConfigOperation.DELETE and entry.name in resource.overrides:
        return None
    key = resource.key(entry.name)
    if operation is ConfigOperation.DELETE:
        return None
    if entry.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{operation.name} of {entry.name} needs a value")
    value = entry.value
    if operation is not ConfigOperation.SET:
        _check_length(entry.name, value)
        value = _new_list(resource, key, operation, entry.value)
    _check_length(entry.name, value)
    try:
        key.parse(value)
    except ConfigError as error:
        raise KafkaError(resource.value_error(key), str(error)) from None
    return value


def _operation(entry: _Entry) -> ConfigOperation:
    if isinstance(entry, configs.LegacyAlterableConfig):
        return ConfigOperation.SET
    try:
        return ConfigOperation(entry.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"unknown operation {entry.config_operation} on {entry.name}"
        ) from None


def _check_length(name: str, value: str) -> None:
    if len(value) > MAX_VALUE_CHARS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"the value of {name} would have {len(value)} characters, more than {MAX_VALUE_CHARS}",
        )


def _new_list(resource: ConfigResource, key: ConfigKey, operation: ConfigOperation, given: str) -> str:
    if key.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key.name} is not a list: it can only be set or deleted")
    current = resource.overrides.get(key.name)
    if current is None:
        inherited = resource.inherited(key.name)
        current = (key.default or "") if inherited is None else inherited
    items, named = split_list(current), dict.fromkeys(split_list(given))
    if operation is ConfigOperation.APPEND:
        present = set(items)
        return ",".join([*items, *(item for item in named if item not in present)])
    return ",".join(item for item in items if item not in named)
