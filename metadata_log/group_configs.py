"""Configuration of single consumer groups (resource type GROUP): names, checks, and what holds.

A group's value is what was set for it, else the server property behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.properties import ConfigKey, ConfigType, at_least, unknown_key_message


@dataclass(frozen=True, slots=True)
class GroupConfigKey(ConfigKey):
    """A group's key and the server property that holds where it is not set."""

    broker_synonym: str = ""


SESSION_TIMEOUT_MS: Final = GroupConfigKey(
    "consumer.session.timeout.ms",
    ConfigType.INT,
    "45000",
    "Session of the group's consumer-protocol members.",
    at_least(1),
    "group.consumer.session.timeout.ms",
)
HEARTBEAT_INTERVAL_MS: Final = GroupConfigKey(
    "consumer.heartbeat.interval.ms",
    ConfigType.INT,
    "5000",
    "Heartbeat interval told to the group's members.",
    at_least(1),
    "group.consumer.heartbeat.interval.ms",
)
GROUP_CONFIGS: Final[Mapping[str, GroupConfigKey]] = {
    key.name: key for key in (HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS)
}


def group_config_key(name: str) -> GroupConfigKey:
    """The key called ``name``. INVALID_CONFIG, naming the nearest one, if there is none."""
    key = GROUP_CONFIGS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key_message(name, GROUP_CONFIGS, {}))
    return key


def check_group_config(overrides: Mapping[str, str], server: Mapping[str, str]) -> None:
    """INVALID_CONFIG unless members can heartbeat within their session. ``server`` is by property name."""

    def number(key: GroupConfigKey) -> int:
        value = key.parse(overrides.get(key.name, server.get(key.broker_synonym, key.default or "")))
        assert isinstance(value, int)
        return value

    interval_ms, session_ms = number(HEARTBEAT_INTERVAL_MS), number(SESSION_TIMEOUT_MS)
    if interval_ms >= session_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{HEARTBEAT_INTERVAL_MS.name} ({interval_ms}) must be less than "
            f"{SESSION_TIMEOUT_MS.name} ({session_ms})",
        )
