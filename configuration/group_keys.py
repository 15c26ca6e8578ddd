"""Configurations of single groups (resource type GROUP).

What holds for a group is what was set for it, else the server property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykraft.configuration.keys import ConfigKey, table
from pykraft.configuration.server_keys import COORDINATOR_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey(ConfigKey):
    """A group's key and the server property that holds where it is not set."""

    server_property: str


def _key(name: str, documentation: str) -> GroupKey:
    server = COORDINATOR_KEYS[f"group.{name}"]
    return GroupKey(
        name, server.type, server.default, documentation, server.validator, server_property=server.name
    )


HEARTBEAT_INTERVAL_MS: Final = _key(
    "consumer.heartbeat.interval.ms", "Heartbeat interval told to the group's members."
)
SESSION_TIMEOUT_MS: Final = _key(
    "consumer.session.timeout.ms", "Session of the group's consumer-protocol members."
)
GROUP_KEYS: Final = table(HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS)
