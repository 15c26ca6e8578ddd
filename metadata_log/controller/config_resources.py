"""The resources with configurations: topics, brokers (one, or all), groups, client metrics subscriptions.

Each kind has keys of its own. This file finds a resource or refuses it; :mod:`.configs_control` changes its
keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.keys import ConfigKey, ConfigType
from pykraft.configuration.topic_keys import SERVER_PROPERTY_TO_TOPIC
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.broker_configs import (
    ALL_BROKERS,
    CORDONED_LOG_DIRS,
    broker_wide_topic_configs,
    dynamic_broker_key,
    dynamic_broker_values,
    dynamic_key_of_all_brokers,
)
from pykraft.metadata_log.configs import check_group_config, check_topic_config, require_key, topic_config_key
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import MIN_INSYNC_REPLICAS
from pykraft.metadata_log.features import CORDONED_LOG_DIRS_FROM, METADATA_VERSION_NAMES
from pykraft.metadata_log.image import MetadataImage

_MAX_NAME_CHARS: Final = 249
_BROKER_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


def _no_objection(overrides: Mapping[str, str]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """One resource that may be altered.

    ``overrides`` are the values it sets, ``key`` returns the key of a name or refuses the name, ``inherited``
    returns the effective value of a name it does not set (None: the key's default), ``check`` refuses values
    that contradict each other. ``value_error`` is Kafka's code for a value that a key cannot have.
    """

    kind: ConfigResourceType
    name: str
    overrides: Mapping[str, str]
    key: Callable[[str], ConfigKey]
    inherited: Callable[[str], str | None]
    check: Callable[[Mapping[str, str]], None] = _no_objection
    value_error: Callable[[ConfigKey], ErrorCode] = lambda key: ErrorCode.INVALID_CONFIG


def find_config_resource(
    image: MetadataImage, config: ControllerConfig, kind: int, name: str
) -> ConfigResource:
    """The resource. INVALID_REQUEST if there is no such kind of resource, or it cannot have this name."""
    match kind:
        case ConfigResourceType.TOPIC:
            return _topic(image, config, name)
        case ConfigResourceType.BROKER:
            return _all_brokers(image, config) if name == ALL_BROKERS else _broker(image, config, name)
        case ConfigResourceType.GROUP:
            return _group(image, config, name)
        case ConfigResourceType.CLIENT_METRICS:
            return _client_metrics(image, name)
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"topics, brokers, groups and client metrics can be configured, but not resource type {kind}",
            )


def _topic(image: MetadataImage, config: ControllerConfig, name: str) -> ConfigResource:
    if name not in image.topic_ids:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    wide = broker_wide_topic_configs(image, config.topic_defaults)
    return ConfigResource(
        ConfigResourceType.TOPIC,
        name,
        image.topic_config(name),
        topic_config_key,
        wide.get,
        lambda overrides: check_topic_config(overrides, wide),
    )


def _value_error_of_brokers(key: ConfigKey) -> ErrorCode:
    return ErrorCode.INVALID_REQUEST


def _all_brokers(image: MetadataImage, config: ControllerConfig) -> ConfigResource:
    overrides = dynamic_broker_values(image, None)

    def check(after: Mapping[str, str]) -> None:
        if image.elr_enabled and MIN_INSYNC_REPLICAS in overrides and MIN_INSYNC_REPLICAS not in after:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"with eligible leader replicas, {MIN_INSYNC_REPLICAS} of all brokers can only be set",
            )
        _check_topic_defaults(config, after)

    return ConfigResource(
        ConfigResourceType.BROKER,
        ALL_BROKERS,
        overrides,
        dynamic_key_of_all_brokers,
        lambda key: _in_file(config, key),
        check,
        _value_error_of_brokers,
    )


def _broker(image: MetadataImage, config: ControllerConfig, name: str) -> ConfigResource:
    if _BROKER_ID.fullmatch(name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:40]!r} is not a broker id")
    broker_id = int(name)
    if broker_id not in image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    for_all = dynamic_broker_values(image, None)

    def key(key_name: str) -> ConfigKey:
        if key_name == MIN_INSYNC_REPLICAS and image.elr_enabled:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"with eligible leader replicas, {MIN_INSYNC_REPLICAS} is set for topics or for all brokers",
            )
        if key_name == CORDONED_LOG_DIRS and not image.supports_cordoned_log_dirs:
            needed = METADATA_VERSION_NAMES[CORDONED_LOG_DIRS_FROM]
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{CORDONED_LOG_DIRS} needs metadata.version {needed}")
        return dynamic_broker_key(key_name)

    # The broker's own properties file is not known here; this controller's is used in its place.
    return ConfigResource(
        ConfigResourceType.BROKER,
        str(broker_id),
        image.resource_config(ConfigResourceType.BROKER, str(broker_id)),
        key,
        lambda key: for_all.get(key, _in_file(config, key)),
        lambda overrides: _check_topic_defaults(config, {**for_all, **overrides}),
        _value_error_of_brokers,
    )


def _check_topic_defaults(config: ControllerConfig, dynamic: Mapping[str, str]) -> None:
    """INVALID_REQUEST if topics that set nothing would have a configuration that none may have."""
    names = SERVER_PROPERTY_TO_TOPIC
    defaults = {names[name]: text for name, text in dynamic.items() if name in names}
    check_topic_config(defaults, config.topic_defaults, ErrorCode.INVALID_REQUEST)


def _in_file(config: ControllerConfig, name: str) -> str | None:
    topic_name = SERVER_PROPERTY_TO_TOPIC.get(name)
    if topic_name is not None:
        return config.topic_defaults.get(topic_name)
    return config.server_properties.get(name)


def _check_name(of_what: str, name: str) -> None:
    if not name or len(name) > _MAX_NAME_CHARS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the name of a {of_what} must have 1 to {_MAX_NAME_CHARS} characters"
        )


def _client_metrics(image: MetadataImage, name: str) -> ConfigResource:
    _check_name("metrics subscription", name)
    return ConfigResource(
        ConfigResourceType.CLIENT_METRICS,
        name,
        image.resource_config(ConfigResourceType.CLIENT_METRICS, name),
        lambda key: require_key(CLIENT_METRICS_KEYS, key, ErrorCode.INVALID_REQUEST),
        lambda key: None,
        value_error=lambda key: (
            ErrorCode.INVALID_REQUEST if key.type is ConfigType.INT else ErrorCode.INVALID_CONFIG
        ),
    )


def _group(image: MetadataImage, config: ControllerConfig, name: str) -> ConfigResource:
    _check_name("group", name)
    return ConfigResource(
        ConfigResourceType.GROUP,
        name,
        image.resource_config(ConfigResourceType.GROUP, name),
        partial(require_key, GROUP_KEYS),
        lambda key: None,
        lambda overrides: check_group_config(overrides, config.server_properties),
    )
