"""From a topic's configuration to the settings of its logs."""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.topic_configs import effective_topic_config

_NEVER = 2**63 - 1
_LEVEL_OF_CODEC = {
    "gzip": "compression.gzip.level",
    "lz4": "compression.lz4.level",
    "zstd": "compression.zstd.level",
}


def build_log_config(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> LogConfig:
    """Both arguments by the topic's own key names; what neither sets is Kafka's default."""
    values = effective_topic_config(overrides, broker_defaults)

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), name
        return value

    def limit(name: str) -> int | None:
        value = number(name)
        return None if value >= _NEVER else value

    policies = values["cleanup.policy"]
    assert isinstance(policies, list)
    codec = str(values["compression.type"])
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        index_bytes=number("segment.index.bytes"),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        cleanup_policy=frozenset(policies),
        flush_messages=limit("flush.messages"),
        flush_ms=limit("flush.ms"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=str(values["message.timestamp.type"]),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        compression_type=codec,
        compression_level=number(_LEVEL_OF_CODEC[codec]) if codec in _LEVEL_OF_CODEC else None,
        min_insync_replicas=number("min.insync.replicas"),
    )
