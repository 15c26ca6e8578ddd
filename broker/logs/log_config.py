"""From a topic's configuration to the settings of its logs."""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.configs import effective_topic_config


def build_log_config(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> LogConfig:
    """Both arguments by the topic's own key names; what neither sets is Kafka's default."""
    return LogConfig.from_properties(effective_topic_config(overrides, broker_defaults))
