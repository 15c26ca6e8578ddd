"""Configurations of topics and groups: their keys, the check of values, and the effective values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pykraft.configuration.group_keys import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, GroupKey
from pykraft.configuration.keys import ConfigError, ConfigKey, ConfigValue, resolve, unknown_key_message
from pykraft.configuration.topic_keys import (
    SERVER_PROPERTY_TO_TOPIC,
    TOPIC_KEYS,
    TopicKey,
    check_topic_values,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

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
    for name in sorted(configs):
        parse_topic_config(name, configs[name])


def effective_topic_config(
    overrides: Mapping[str, str], broker_defaults: Mapping[str, str]
) -> dict[str, ConfigValue]:
    """Typed values of every key; both arguments are by topic key name."""
    given = {**broker_defaults, **overrides}
    return _TOPIC_DEFAULTS | resolve({name: TOPIC_KEYS[name] for name in given if name in TOPIC_KEYS}, given)


def check_topic_config(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> None:
    """INVALID_CONFIG if the effective values, each of which is valid, contradict each other."""
    try:
        check_topic_values({**broker_defaults, **overrides})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_group_config(overrides: Mapping[str, str], server: Mapping[str, str]) -> None:
    """INVALID_CONFIG unless heartbeats fit into the session timeout. ``server`` is by property name."""

    def number(key: GroupKey) -> int:
        value = key.parse(overrides.get(key.name, server.get(key.server_property, key.default or "")))
        assert isinstance(value, int)
        return value

    interval_ms, session_ms = number(HEARTBEAT_INTERVAL_MS), number(SESSION_TIMEOUT_MS)
    if interval_ms >= session_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{HEARTBEAT_INTERVAL_MS.name} ({interval_ms}) must be less than "
            f"{SESSION_TIMEOUT_MS.name} ({session_ms})",
        )
