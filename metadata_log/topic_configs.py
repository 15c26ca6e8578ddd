"""Kafka's topic configuration keys: types, defaults, the broker-wide property behind each, what is allowed.

A topic's effective value is what was set on the topic, else the broker-wide property named by
``broker_synonym``, else the default here. This table is the only list of keys: the controller validates
against it, the broker and DescribeConfigs read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.properties import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    at_least,
    between,
    one_of,
    unknown_key_message,
)

Validator = Callable[[ConfigValue], str | None]

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_FOREVER: Final = str(2**63 - 1)
_MIN_SEGMENT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TopicConfigKey(ConfigKey):
    """A topic key and the server property that gives its broker-wide value (empty: there is none)."""

    broker_synonym: str = ""


def _gzip_level(value: ConfigValue) -> str | None:
    return None if value == -1 else between(1, 9)(value)


def _disabled(value: ConfigValue) -> str | None:
    return "tiered storage is not available" if value else None


def _throttled_replicas(value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    for item in value:
        partition, colon, broker = item.partition(":")
        if item != "*" and not (colon and partition.isdigit() and broker.isdigit()):
            return "must be * or a list of partition:broker"
    return None


def _key(
    name: str,
    kind: ConfigType,
    default: str,
    documentation: str,
    broker_synonym: str = "",
    validator: Validator | None = None,
) -> TopicConfigKey:
    return TopicConfigKey(name, kind, default, documentation, validator, broker_synonym)


_KEYS: Final = (
    _key(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old segments: deleted, compacted by key, or both.",
        "log.cleanup.policy",
        one_of("compact", "delete"),
    ),
    _key(
        "compression.gzip.level",
        _INT,
        "-1",
        "The level used where the broker compresses with gzip.",
        "compression.gzip.level",
        _gzip_level,
    ),
    _key(
        "compression.lz4.level",
        _INT,
        "9",
        "The level used where the broker compresses with lz4.",
        "compression.lz4.level",
        between(1, 17),
    ),
    _key(
        "compression.type",
        _STRING,
        "producer",
        "How batches are stored: as the producer sent them, or in one given codec.",
        "compression.type",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _key(
        "compression.zstd.level",
        _INT,
        "3",
        "The level used where the broker compresses with zstd.",
        "compression.zstd.level",
        between(-131072, 22),
    ),
    _key(
        "delete.retention.ms",
        _LONG,
        "86400000",
        "How long compaction keeps a delete marker.",
        "log.cleaner.delete.retention.ms",
        at_least(0),
    ),
    _key(
        "file.delete.delay.ms",
        _LONG,
        "60000",
        "How long a deleted segment's files stay on disk.",
        "log.segment.delete.delay.ms",
        at_least(0),
    ),
    _key(
        "flush.messages",
        _LONG,
        _FOREVER,
        "Flush a log after this many records.",
        "log.flush.interval.messages",
        at_least(1),
    ),
    _key(
        "flush.ms",
        _LONG,
        _FOREVER,
        "Flush a log when a record has waited this long.",
        "log.flush.interval.ms",
        at_least(0),
    ),
    _key(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        "Replicas (partition:broker, or *) throttled on the follower's side.",
        "",
        _throttled_replicas,
    ),
    _key(
        "index.interval.bytes",
        _INT,
        "4096",
        "Bytes of log between two entries of the offset index.",
        "log.index.interval.bytes",
        at_least(0),
    ),
    _key(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        "Replicas (partition:broker, or *) throttled on the leader's side.",
        "",
        _throttled_replicas,
    ),
    _key(
        "local.retention.bytes",
        _LONG,
        "-2",
        "With tiered storage: bytes kept locally.",
        "log.local.retention.bytes",
        at_least(-2),
    ),
    _key(
        "local.retention.ms",
        _LONG,
        "-2",
        "With tiered storage: how long segments are kept locally.",
        "log.local.retention.ms",
        at_least(-2),
    ),
    _key(
        "max.compaction.lag.ms",
        _LONG,
        _FOREVER,
        "The longest a record may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
        at_least(1),
    ),
    _key(
        "max.message.bytes",
        _INT,
        "1048588",
        "The largest record batch accepted.",
        "message.max.bytes",
        at_least(0),
    ),
    _key(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "How far a record's timestamp may lie in the broker's future.",
        "log.message.timestamp.after.max.ms",
        at_least(0),
    ),
    _key(
        "message.timestamp.before.max.ms",
        _LONG,
        _FOREVER,
        "How far a record's timestamp may lie in the broker's past.",
        "log.message.timestamp.before.max.ms",
        at_least(0),
    ),
    _key(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whose clock stamps records: the producer's or the broker's.",
        "log.message.timestamp.type",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _key(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        "0.5",
        "The share of uncompacted bytes from which a log is compacted.",
        "log.cleaner.min.cleanable.ratio",
        between(0, 1),
    ),
    _key(
        "min.compaction.lag.ms",
        _LONG,
        "0",
        "The least time a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
        at_least(0),
    ),
    _key(
        "min.insync.replicas",
        _INT,
        "1",
        "With acks=all: the fewest in-sync replicas a write is accepted with.",
        "min.insync.replicas",
        at_least(1),
    ),
    _key("preallocate", _BOOLEAN, "false", "Create segment files at full size.", "log.preallocate"),
    _key("remote.log.copy.disable", _BOOLEAN, "false", "With tiered storage: stop copying segments."),
    _key(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        "false",
        "With tiered storage: delete remote data when it is switched off.",
    ),
    _key("remote.storage.enable", _BOOLEAN, "false", "Tiered storage.", "", _disabled),
    _key(
        "retention.bytes",
        _LONG,
        "-1",
        "The size a partition's log is trimmed to; -1 for no bound.",
        "log.retention.bytes",
        at_least(-1),
    ),
    _key(
        "retention.ms",
        _LONG,
        "604800000",
        "The age at which segments are deleted; -1 for never.",
        "log.retention.ms",
        at_least(-1),
    ),
    _key(
        "segment.bytes",
        _INT,
        "1073741824",
        "The size at which a new segment is begun.",
        "log.segment.bytes",
        at_least(_MIN_SEGMENT_BYTES),
    ),
    _key(
        "segment.index.bytes",
        _INT,
        "10485760",
        "The largest size of a segment's index.",
        "log.index.size.max.bytes",
        at_least(4),
    ),
    _key(
        "segment.jitter.ms",
        _LONG,
        "0",
        "Random time taken off segment.ms, so that segments do not all roll at once.",
        "log.roll.jitter.ms",
        at_least(0),
    ),
    _key(
        "segment.ms",
        _LONG,
        "604800000",
        "The age at which a new segment is begun.",
        "log.roll.ms",
        at_least(1),
    ),
    _key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "Whether a replica outside the ISR may lead when no other is left, at the cost of records.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfigKey]] = {key.name: key for key in _KEYS}
TOPIC_NAMES: Final[Mapping[str, str]] = {key.broker_synonym: key.name for key in _KEYS if key.broker_synonym}
"""From a server property to the topic configuration it gives the broker-wide value of."""


def topic_config_key(name: str) -> TopicConfigKey:
    """The key called ``name``. INVALID_CONFIG, naming the nearest one, if there is none."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key_message(name, TOPIC_CONFIGS, TOPIC_NAMES))
    return key


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
    """Typed values of every key; both arguments are by the topic's own key names."""
    return {
        name: key.parse(overrides.get(name, broker_defaults.get(name, key.default or "")))
        for name, key in TOPIC_CONFIGS.items()
    }
