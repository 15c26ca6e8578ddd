"""Configurations of topics and groups: their keys, the check of values, and the effective values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pykraft.configuration.group_keys import GROUP_KEYS, GroupKey
from pykraft.configuration.keys import ConfigError, ConfigKey, ConfigValue, resolve, unknown_key_message
from pykraft.configuration.server_keys import SERVER_KEYS
from pykraft.configuration.topic_keys import (
    SERVER_PROPERTY_TO_TOPIC,
    TOPIC_KEYS,
    TopicKey,
    check_topic_values,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.refused_values import without_refused

Key = TypeVar("Key", bound=ConfigKey)

_NO_NAMES: Final[Mapping[str, str]] = {}
_TOPIC_DEFAULTS: Final = resolve(TOPIC_KEYS, {})


def require_key(
    keys: Mapping[str, Key],
    name: str,
    code: ErrorCode = ErrorCode.INVALID_CONFIG,
    names_elsewhere: Mapping[str, str] = _NO_NAMES,
) -> Key:
    """The key called ``name``. If there is none: an error with ``code`` that suggests the nearest name."""
    key = keys.get(name)
    if key is None:
        raise KafkaError(code, unknown_key_message(name, keys, names_elsewhere))
    return key


def topic_config_key(name: str) -> TopicKey:
    """The key called ``name``. If there is none: INVALID_CONFIG, with the nearest name as a suggestion."""
    return require_key(TOPIC_KEYS, name, names_elsewhere=SERVER_PROPERTY_TO_TOPIC)


def parse_topic_config(name: str, text: str) -> ConfigValue:
    """The typed value. INVALID_CONFIG if the key is unknown or the value is not allowed."""
    try:
        return topic_config_key(name).parse(text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    """INVALID_CONFIG if any key is unknown or any value is not allowed."""
    for name, value in configs.items():
        parse_topic_config(name, value)


def effective_topic_config(
    overrides: Mapping[str, str], broker_defaults: Mapping[str, str]
) -> dict[str, ConfigValue]:
    """Typed values of every key; both arguments are by topic key name."""
    given = {**broker_defaults, **overrides}
    return _TOPIC_DEFAULTS | resolve({name: TOPIC_KEYS[name] for name in given if name in TOPIC_KEYS}, given)


def check_topic_config(
    overrides: Mapping[str, str],
    broker_defaults: Mapping[str, str],
    code: ErrorCode = ErrorCode.INVALID_CONFIG,
) -> None:
    """An error with ``code`` if effective values contradict each other, apart from those refused here."""
    try:
        check_topic_values({**broker_defaults, **without_refused(TOPIC_KEYS, overrides)})
    except ConfigError as error:
        raise KafkaError(code, str(error)) from None


def check_group_config(overrides: Mapping[str, str], server: Mapping[str, str]) -> None:
    """INVALID_CONFIG for a value beyond the server's limits for it, or unless heartbeats fit into the session
    timeout. ``server`` is by property name. Values that another version accepted and this one refuses do not
    count.
    """
    overrides = without_refused(GROUP_KEYS, overrides)

    def number(key: ConfigKey, text: str | None) -> int:
        value = key.parse(text if text is not None else key.default or "")
        assert isinstance(value, int)
        return value

    def effective(key: GroupKey) -> int:
        return number(key, overrides.get(key.name, server.get(key.server_property or "")))

    for key in [key for name, key in GROUP_KEYS.items() if name in overrides]:
        least, most = key.least_property, key.most_property
        if least and effective(key) < number(SERVER_KEYS[least], server.get(least)):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key.name} must be greater than or equal to {least}")
        if most and effective(key) > number(SERVER_KEYS[most], server.get(most)):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key.name} must be less than or equal to {most}")
    for protocol in ("consumer", "share", "streams"):
        session = GROUP_KEYS[f"{protocol}.session.timeout.ms"]
        heartbeat = GROUP_KEYS[f"{protocol}.heartbeat.interval.ms"]
        if effective(session) <= effective(heartbeat):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{session.name} must be greater than {heartbeat.name}"
            )
