"""Where the value of a configuration comes from, as Kafka's protocol numbers it."""

from __future__ import annotations

from enum import IntEnum


class ConfigSource(IntEnum):
    """In the order in which one wins over the next: what was set for a resource itself comes first."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8
