"""Kafka's dynamic broker properties that pykraft keeps and describes, and does not read.

Tools set them and look at them again, and some of them (the throttles) are taken away by tools that never set
them. What is asked of a broker's own means, such as threads, changes nothing here.
Not among them, though Kafka can change it while a broker runs: what says where a broker listens, who may come
in, or which classes to load. To keep that without doing it would be a false promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.runtime.properties import ConfigKey, ConfigType, at_least

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST


def _table(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in keys}


STORED_PROPERTIES: Final = _table(
    ConfigKey("background.threads", _INT, "10", "Threads for chores.", at_least(1)),
    ConfigKey("cordoned.log.dirs", _LIST, "", "Directories that get no new replicas."),
    ConfigKey("follower.fetch.last.tiered.offset.enable", _BOOLEAN, "false", "A new follower begins at what was last tiered."),
    ConfigKey("group.consumer.assignment.interval.ms", _INT, "1000", "The shortest time between two assignments of a consumer group.", at_least(0)),
    ConfigKey("group.coordinator.cached.buffer.max.bytes", _INT, "1048588", "The largest write buffer that a group coordinator keeps.", at_least(524288)),
    ConfigKey("group.share.assignment.interval.ms", _INT, "1000", "The shortest time between two assignments of a share group.", at_least(0)),
    ConfigKey("group.streams.assignment.interval.ms", _INT, "1000", "The shortest time between two assignments of a streams group.", at_least(0)),
    ConfigKey("log.cleaner.backoff.ms", _LONG, "15000", "The compactor's pause when there is nothing to do.", at_least(0)),
    ConfigKey("log.cleaner.dedupe.buffer.size", _LONG, "134217728", "Memory in which compaction remembers keys.", at_least(0)),
    ConfigKey("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "How full that memory may get.", at_least(0)),
    ConfigKey("log.cleaner.io.buffer.size", _INT, "524288", "Memory through which compaction reads and writes.", at_least(0)),
    ConfigKey("log.cleaner.io.max.bytes.per.second", _DOUBLE, "1.7976931348623157E308", "Bytes a second that compaction may read and write.", at_least(0)),
    ConfigKey("log.cleaner.threads", _INT, "1", "Threads that compact.", at_least(0)),
    ConfigKey("max.connection.creation.rate", _INT, "2147483647", "New connections a second.", at_least(0)),
    ConfigKey("max.connections.per.ip.overrides", _STRING, "", "Connections per address where another number holds, host:number."),
    ConfigKey("num.io.threads", _INT, "8", "Threads that serve requests.", at_least(1)),
    ConfigKey("num.network.threads", _INT, "3", "Threads that read and write sockets.", at_least(1)),
    ConfigKey("num.recovery.threads.per.data.dir", _INT, "2", "Threads a directory that open logs at a start.", at_least(1)),
    ConfigKey("num.replica.fetchers", _INT, "1", "Connections a follower fetches by from each leader.", at_least(1)),
    ConfigKey("remote.fetch.max.wait.ms", _INT, "500", "Patience of a fetch with tiered storage.", at_least(1)),
    ConfigKey("remote.list.offsets.request.timeout.ms", _LONG, "30000", "Patience of ListOffsets with tiered storage.", at_least(1)),
    ConfigKey("remote.log.index.file.cache.total.size.bytes", _LONG, "1073741824", "Disk space for indexes of tiered segments.", at_least(1)),
    ConfigKey("remote.log.manager.copier.thread.pool.size", _INT, "10", "Threads that copy segments to tiered storage.", at_least(1)),
    ConfigKey("remote.log.manager.copy.max.bytes.per.second", _LONG, "9223372036854775807", "Bytes a second copied to tiered storage.", at_least(1)),
    ConfigKey("remote.log.manager.expiration.thread.pool.size", _INT, "10", "Threads that delete expired tiered segments.", at_least(1)),
    ConfigKey("remote.log.manager.fetch.max.bytes.per.second", _LONG, "9223372036854775807", "Bytes a second read from tiered storage.", at_least(1)),
    ConfigKey("remote.log.manager.follower.thread.pool.size", _INT, "2", "Threads that follow tiered storage for followers.", at_least(1)),
    ConfigKey("remote.log.reader.threads", _INT, "10", "Threads that read tiered storage.", at_least(1)),
    ConfigKey("share.coordinator.cached.buffer.max.bytes", _INT, "1048588", "The largest write buffer that a share coordinator keeps.", at_least(524288)),
    ConfigKey("transaction.partition.verification.enable", _BOOLEAN, "true", "Check with the coordinator that a partition belongs to a transaction."),
)  # fmt: skip
"""Those that a properties file may hold too."""

THROTTLES: Final = _table(
    ConfigKey("leader.replication.throttled.rate", _LONG, "9223372036854775807", "Bytes a second that leaders send of throttled replicas.", at_least(0)),
    ConfigKey("follower.replication.throttled.rate", _LONG, "9223372036854775807", "Bytes a second that followers fetch of throttled replicas.", at_least(0)),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, "9223372036854775807", "Bytes a second of moves between directories.", at_least(0)),
)  # fmt: skip
"""Those that no properties file holds: shown where they are set."""

OF_ONE_BROKER: Final = frozenset({"cordoned.log.dirs"})
"""Those that cannot be set for all brokers at once."""
