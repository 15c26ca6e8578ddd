"""Derives the settings of a log from the configuration of its topic."""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.configs import effective_topic_config


def build_log_config(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> LogConfig:
    """Both arguments use the key names of topics; keys that neither sets have Kafka's defaults."""
    return LogConfig.from_properties(effective_topic_config(overrides, broker_defaults))
