"""Kafka's topic configurations, and the server property behind each.

A topic uses the value that was set on it, or else the server property, or else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.configuration.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigError,
    ConfigKey,
    ConfigValue,
    Validator,
    at_least,
    between,
    one_of,
    table,
)
from pykraft.lazy_dataclass import dataclass

FOREVER: Final = 2**63 - 1
"""A number of milliseconds or records that means no limit."""
_MIN_SEGMENT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TopicKey(ConfigKey):
    """``server_property`` gives the value for topics that do not set the key (empty: there is none).

    ``is_internal``: for tests of clusters; it can be set, and is shown only where it is set.
    """

    server_property: str = ""
    is_internal: bool = False


def _object_to_gzip_level(value: ConfigValue) -> str | None:
    return None if value == -1 else between(1, 9).objection(value)


def _object_to_throttled_replicas(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    for item in value:
        partition, colon, broker = item.partition(":")
        if item != "*" and not (colon and partition.isdigit() and broker.isdigit()):
            return "must be * or a list of partition:broker"
    return None


_GZIP_LEVEL: Final = Validator("[1,...,9] or -1", _object_to_gzip_level)
_THROTTLED_REPLICAS: Final = Validator("*, or [partition:broker, ...]", _object_to_throttled_replicas)
_FALSE: Final = Validator("[false]", lambda value: "tiered storage is not available" if value else None)

TOPIC_KEYS: Final = table(
    TopicKey("cleanup.policy", LIST, "delete", "What happens to old segments: deleted, compacted by key, or both.", one_of("compact", "delete"), "log.cleanup.policy"),
    TopicKey("compression.gzip.level", INT, "-1", "The level used where the broker compresses with gzip.", _GZIP_LEVEL, "compression.gzip.level"),
    TopicKey("compression.lz4.level", INT, "9", "The level used where the broker compresses with lz4.", between(1, 17), "compression.lz4.level"),
    TopicKey("compression.type", STRING, "producer", "How batches are stored: as sent, or in one codec.", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type"),
    TopicKey("compression.zstd.level", INT, "3", "The level used where the broker compresses with zstd.", between(-131072, 22), "compression.zstd.level"),
    TopicKey("delete.retention.ms", LONG, "86400000", "How long compaction keeps a tombstone.", at_least(0), "log.cleaner.delete.retention.ms"),
    TopicKey("file.delete.delay.ms", LONG, "60000", "How long a deleted segment's files stay on disk.", at_least(0), "log.segment.delete.delay.ms"),
    TopicKey("flush.messages", LONG, str(FOREVER), "Flush a log after this many records.", at_least(1), "log.flush.interval.messages"),
    TopicKey("flush.ms", LONG, str(FOREVER), "Flush a log when a record has waited this long.", at_least(0), "log.flush.interval.ms"),
    TopicKey("follower.replication.throttled.replicas", LIST, "", "Replicas (partition:broker, or *) throttled on the follower's side.", _THROTTLED_REPLICAS),
    TopicKey("index.interval.bytes", INT, "4096", "Bytes of log between two entries of the offset index.", at_least(0), "log.index.interval.bytes"),
    TopicKey("internal.segment.bytes", INT, None, "Takes the place of segment.bytes, without its minimum.", at_least(1), is_internal=True),
    TopicKey("leader.replication.throttled.replicas", LIST, "", "Replicas (partition:broker, or *) throttled on the leader's side.", _THROTTLED_REPLICAS),
    TopicKey("local.retention.bytes", LONG, "-2", "With tiered storage: bytes kept locally.", at_least(-2), "log.local.retention.bytes"),
    TopicKey("local.retention.ms", LONG, "-2", "With tiered storage: how long segments are kept locally.", at_least(-2), "log.local.retention.ms"),
    TopicKey("max.compaction.lag.ms", LONG, str(FOREVER), "The longest time that a record may stay uncompacted.", at_least(1), "log.cleaner.max.compaction.lag.ms"),
    TopicKey("max.message.bytes", INT, "1048588", "The largest record batch accepted.", at_least(0), "message.max.bytes"),
    TopicKey("message.timestamp.after.max.ms", LONG, "3600000", "How far a record's timestamp may be ahead of the broker's clock.", at_least(0), "log.message.timestamp.after.max.ms"),
    TopicKey("message.timestamp.before.max.ms", LONG, str(FOREVER), "How far a record's timestamp may be behind the broker's clock.", at_least(0), "log.message.timestamp.before.max.ms"),
    TopicKey("message.timestamp.type", STRING, "CreateTime", "The source of timestamps: the producer's clock or the broker's.", one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type"),
    TopicKey("min.cleanable.dirty.ratio", DOUBLE, "0.5", "The ratio of uncompacted bytes at which a log is compacted.", between(0, 1), "log.cleaner.min.cleanable.ratio"),
    TopicKey("min.compaction.lag.ms", LONG, "0", "The shortest time that a record stays uncompacted.", at_least(0), "log.cleaner.min.compaction.lag.ms"),
    TopicKey("min.insync.replicas", INT, "1", "The fewest in-sync replicas with which a write with acks=all is accepted.", at_least(1), "min.insync.replicas"),
    TopicKey("preallocate", BOOLEAN, "false", "Reserve disk space, 64 MiB at a time (on Linux).", None, "log.preallocate"),
    TopicKey("remote.log.copy.disable", BOOLEAN, "false", "With tiered storage: stop copying segments."),
    TopicKey("remote.log.delete.on.disable", BOOLEAN, "false", "With tiered storage: delete remote data when tiered storage is disabled."),
    TopicKey("remote.storage.enable", BOOLEAN, "false", "Tiered storage.", _FALSE),
    TopicKey("retention.bytes", LONG, "-1", "The size above which old segments of a partition are deleted; -1 for no limit.", at_least(-1), "log.retention.bytes"),
    TopicKey("retention.ms", LONG, "604800000", "The age at which segments are deleted; -1 for never.", at_least(-1), "log.retention.ms"),
    TopicKey("segment.bytes", INT, "1073741824", "The size at which a new segment is started.", at_least(_MIN_SEGMENT_BYTES), "log.segment.bytes"),
    TopicKey("segment.index.bytes", INT, "10485760", "The largest size of a segment's index.", at_least(4), "log.index.size.max.bytes"),
    TopicKey("segment.jitter.ms", LONG, "0", "Random time subtracted from segment.ms.", at_least(0), "log.roll.jitter.ms"),
    TopicKey("segment.ms", LONG, "604800000", "The age at which a new segment is started.", at_least(1), "log.roll.ms"),
    TopicKey("unclean.leader.election.enable", BOOLEAN, "false", "Whether a replica outside the ISR may lead if no other can; records may be lost.", None, "unclean.leader.election.enable"),
)  # fmt: skip

SERVER_PROPERTY_TO_TOPIC: Final = {
    key.server_property: key.name for key in TOPIC_KEYS.values() if key.server_property
}
TOPIC_TO_SERVER_PROPERTY: Final = {name: server for server, name in SERVER_PROPERTY_TO_TOPIC.items()}


def check_topic_values(given: Mapping[str, str]) -> None:
    """:class:`ConfigError` if values, each of which is valid, contradict each other: the least time until a
    record is compacted must not be longer than the greatest.
    """
    least, greatest = (
        key.parse(given.get(key.name, key.default or ""))
        for key in (TOPIC_KEYS["min.compaction.lag.ms"], TOPIC_KEYS["max.compaction.lag.ms"])
    )
    assert isinstance(least, int) and isinstance(greatest, int)
    if least > greatest:
        raise ConfigError(
            f"min.compaction.lag.ms ({least}) must not be greater than max.compaction.lag.ms ({greatest})"
        )
