"""Server properties of Kafka that pykraft does not read, so that files and tools for Kafka work.

The properties that Kafka 4.3 lists when it describes a broker are described here as well, with its types and
defaults. Kafka can change some of them while a broker runs. Tools set these and read them again, and some
(the throttles) are deleted by tools that never set them: such values are stored and described. Of these only
the throttles of replication have an effect. Properties for listeners, for access and for classes to load are
not stored, although Kafka can change them: to store them without acting on them would be a false promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pykraft.configuration.keys import (
    BOOLEAN,
    INT,
    LONG,
    STRING,
    ConfigKey,
    ConfigType,
    at_least,
    dynamic_key,
    table,
)

STORED_KEYS: Final = table(
    dynamic_key("background.threads", INT, "10", "Threads for background work.", at_least(1)),
    dynamic_key("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", "A new follower starts at the last tiered offset."),
    dynamic_key("group.coordinator.cached.buffer.max.bytes", INT, "1048588", "The largest write buffer that a group coordinator keeps.", at_least(524288)),
    dynamic_key("group.share.assignment.interval.ms", INT, "1000", "The shortest time between two assignments of a share group.", at_least(0)),
    dynamic_key("group.streams.assignment.interval.ms", INT, "1000", "The shortest time between two assignments of a streams group.", at_least(0)),
    dynamic_key("max.connection.creation.rate", INT, "2147483647", "New connections a second.", at_least(0)),
    dynamic_key("max.connections.per.ip.overrides", STRING, "", "Other limits for single addresses, host:number."),
    dynamic_key("num.io.threads", INT, "8", "Threads that serve requests.", at_least(1)),
    dynamic_key("num.network.threads", INT, "3", "Threads that read and write sockets.", at_least(1)),
    dynamic_key("num.recovery.threads.per.data.dir", INT, "2", "Threads per directory that open logs at startup.", at_least(1)),
    dynamic_key("remote.fetch.max.wait.ms", INT, "500", "How long a fetch waits for tiered storage.", at_least(1)),
    dynamic_key("remote.list.offsets.request.timeout.ms", LONG, "30000", "How long ListOffsets waits for tiered storage.", at_least(1)),
    dynamic_key("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", "Disk space for indexes of tiered segments.", at_least(1)),
    dynamic_key("remote.log.manager.copier.thread.pool.size", INT, "10", "Threads that copy segments to tiered storage.", at_least(1)),
    dynamic_key("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807", "Bytes a second copied to tiered storage.", at_least(1)),
    dynamic_key("remote.log.manager.expiration.thread.pool.size", INT, "10", "Threads that delete expired tiered segments.", at_least(1)),
    dynamic_key("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807", "Bytes a second read from tiered storage.", at_least(1)),
    dynamic_key("remote.log.manager.follower.thread.pool.size", INT, "2", "Threads that follow tiered storage for followers.", at_least(1)),
    dynamic_key("remote.log.reader.threads", INT, "10", "Threads that read tiered storage.", at_least(1)),
    dynamic_key("share.coordinator.cached.buffer.max.bytes", INT, "1048588", "The largest write buffer that a share coordinator keeps.", at_least(524288)),
)  # fmt: skip
"""Dynamic properties that may also be in a properties file."""

THROTTLE_KEYS: Final = table(
    dynamic_key("leader.replication.throttled.rate", LONG, "9223372036854775807", "Bytes a second that leaders send for throttled replicas.", at_least(0)),
    dynamic_key("follower.replication.throttled.rate", LONG, "9223372036854775807", "Bytes a second that followers fetch for throttled replicas.", at_least(0)),
    dynamic_key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, "9223372036854775807", "Bytes a second of moves between directories.", at_least(0)),
)  # fmt: skip
"""Dynamic properties that cannot be in a properties file; described only if they are set."""


def _read_keys(file: str) -> Mapping[str, ConfigKey]:
    """The keys in a file beside this one: name, type, default (``null``: none) and text, between tabs."""
    lines = Path(__file__).with_name(file).read_text("utf-8").splitlines()[1:]
    return table(
        *(
            ConfigKey(name, ConfigType[kind], None if default == "null" else default, text)
            for name, kind, default, text in (line.split("	") for line in lines)
        )
    )


STATIC_KEYS: Final = _read_keys("kafka_keys.tsv")
"""Properties that Kafka reads at startup only, or that pykraft cannot change while it runs."""

INTERNAL_NAMES: Final = frozenset(
    """
auto.include.jmx.reporter controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
dir.failure.timeout.ms eligible.leader.replicas.enable group.share.enable group.share.max.groups log.initial.task.delay.ms metadata.log.segment.min.bytes
producer.id.expiration.check.interval.ms remote.log.copy.disable remote.log.delete.on.disable
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter remote.log.metadata.consume.wait.ms
remote.log.metadata.initialization.retry.interval.ms
remote.log.metadata.initialization.retry.max.timeout.ms remote.log.metadata.topic.num.partitions
remote.log.metadata.topic.replication.factor remote.log.metadata.topic.retention.ms
reserved.broker.max.id sasl.mechanism sasl.oauthbearer.header.urlencode server.max.startup.time.ms
share.fetch.max.fetch.records super.users unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable
""".split()
)
"""Properties of other releases than 4.3, or internal in 4.3: accepted, but not described."""
