"""Configurations of single groups (resource type GROUP).

A group uses the value that was set for it, or else the server property.
"""

from __future__ import annotations

from typing import Final

from pykraft.configuration.keys import ConfigKey, table
from pykraft.configuration.server_keys import COORDINATOR_KEYS
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey(ConfigKey):
    """A group's key, with the server property that applies if it is not set."""

    server_property: str


def _key(name: str, documentation: str) -> GroupKey:
    server = COORDINATOR_KEYS[f"group.{name}"]
    return GroupKey(
        name, server.type, server.default, documentation, server.validator, server_property=server.name
    )


HEARTBEAT_INTERVAL_MS: Final = _key(
    "consumer.heartbeat.interval.ms",
    "The heartbeat interval of the group's members with the consumer protocol.",
)
SESSION_TIMEOUT_MS: Final = _key(
    "consumer.session.timeout.ms", "The session timeout of the group's members with the consumer protocol."
)
GROUP_KEYS: Final = table(HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS)
