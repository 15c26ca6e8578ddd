"""Server properties with Kafka's names, types, defaults and units: what a node reads, and all there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykraft.configuration.kafka_keys import INTERNAL_NAMES, STATIC_KEYS, STORED_KEYS, THROTTLE_KEYS
from pykraft.configuration.keys import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    ConfigKey,
    ConfigType,
    Validator,
    at_least,
    dynamic_key,
    one_of,
    table,
)
from pykraft.configuration.topic_keys import SERVER_PROPERTY_TO_TOPIC, TOPIC_KEYS

NODE_KEYS: Final = table(
    ConfigKey("process.roles", LIST, None, "broker, controller or both.", one_of("broker", "controller")),
    ConfigKey("node.id", INT, None, "The id of this node, unique in the cluster.", at_least(0)),
    ConfigKey("listeners", LIST, None, "NAME://host:port of every socket this node opens."),
    ConfigKey("advertised.listeners", LIST, None, "What clients are told instead of the listeners."),
    ConfigKey("controller.listener.names", LIST, None, "Which listeners belong to the controller: the first is the quorum's own (gRPC), the others are for clients (Kafka's protocol)."),
    ConfigKey("inter.broker.listener.name", STRING, None, "The listener brokers use among themselves."),
    ConfigKey("listener.security.protocol.map", LIST, None, "NAME:PROTOCOL pairs; only PLAINTEXT is served so far."),
    ConfigKey("controller.quorum.voters", LIST, None, "id@host:port of every voter, where the voters are fixed."),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, None, "host:port of controllers to ask for the leader, where the voters are in the log."),
    ConfigKey("controller.quorum.auto.join.enable", BOOLEAN, "false", "A controller that is no voter asks to become one."),
    ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The data directories, where log.dirs is not given."),
    ConfigKey("log.dirs", LIST, None, "The data directories."),
    ConfigKey("metadata.log.dir", STRING, None, "Where the metadata log lives; the first of log.dirs by default."),
    ConfigKey("broker.rack", STRING, None, "The rack of this broker, for placement."),
)  # fmt: skip

QUORUM_KEYS: Final = table(
    ConfigKey("controller.quorum.election.timeout.ms", INT, "1000", "How long a candidate waits for votes.", at_least(1)),
    ConfigKey("controller.quorum.fetch.timeout.ms", INT, "2000", "How long without a successful fetch until an election.", at_least(1)),
    ConfigKey("controller.quorum.election.backoff.max.ms", INT, "1000", "The longest pause after a lost election.", at_least(1)),
    ConfigKey("controller.quorum.request.timeout.ms", INT, "2000", "The deadline of one quorum request.", at_least(1)),
    ConfigKey("controller.quorum.retry.backoff.ms", INT, "20", "The pause before a failed quorum request is sent again.", at_least(0)),
    ConfigKey("controller.quorum.fetch.max.bytes", INT, "1048576", "Bytes of records in one answer of the quorum's leader.", at_least(1)),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576", "Bytes of a snapshot in one answer of the quorum's leader.", at_least(1)),
    ConfigKey("metadata.log.segment.bytes", INT, "1073741824", "The size at which the metadata log starts a new segment.", at_least(12)),
    ConfigKey("metadata.log.segment.ms", LONG, "604800000", "The age at which the metadata log starts a new segment.", at_least(1)),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", "Bytes of committed metadata log behind the last snapshot at which this node writes the next.", at_least(1)),
    ConfigKey("metadata.log.max.snapshot.interval.ms", LONG, "3600000", "The age of the last snapshot at which this node writes the next, if anything was committed since; 0 for no such bound.", at_least(0)),
    ConfigKey("metadata.max.retention.bytes", LONG, "104857600", "Metadata log and snapshots together: beyond this the log before a snapshot, and older snapshots, go."),
    ConfigKey("metadata.max.retention.ms", LONG, "604800000", "The age at which the metadata log before a snapshot, and older snapshots, go."),
    ConfigKey("metadata.max.idle.interval.ms", INT, "0", "The active controller writes a record that changes nothing after this long without another; 0 (Kafka: 500) for only what the leases of brokers need.", at_least(0)),
)  # fmt: skip

BROKER_KEYS: Final = table(
    ConfigKey("broker.heartbeat.interval.ms", INT, "2000", "How often a broker reports to the controller.", at_least(1)),
    ConfigKey("broker.session.timeout.ms", INT, "9000", "How long a broker stays unfenced that is silent, or gets no further in the metadata log. The same on all controllers, but while it is changed.", at_least(1)),
    ConfigKey("initial.broker.registration.timeout.ms", INT, "60000", "How long a starting broker waits for the controller.", at_least(1)),
    ConfigKey("auto.create.topics.enable", BOOLEAN, "true", "Create a topic when a client asks for one that is missing."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, "true", "Give leaderships back to the preferred replicas from time to time."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, "300", "How often leaderships are looked at for that.", at_least(1)),
    ConfigKey("leader.imbalance.per.broker.percentage", INT, "10", "How much of what prefers a broker others may lead.", at_least(0)),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    ConfigKey("num.partitions", INT, "1", "Partitions of a topic created without a number.", at_least(1)),
    ConfigKey("default.replication.factor", INT, "1", "Replicas of a topic created without a number.", at_least(1)),
    ConfigKey("offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.replication.factor", SHORT, "3", "Replicas of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", "Segment size of __consumer_offsets.", at_least(1)),
    ConfigKey("replica.lag.time.max.ms", LONG, "30000", "How long a follower may lag before it leaves the ISR.", at_least(1)),
    ConfigKey("replica.fetch.max.bytes", INT, "1048576", "Bytes a follower fetches of one partition.", at_least(0)),
    ConfigKey("replica.fetch.response.max.bytes", INT, "10485760", "Bytes a follower fetches at once.", at_least(0)),
    ConfigKey("replica.fetch.min.bytes", INT, "1", "Bytes a leader waits for before it answers a follower.", at_least(0)),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", "How long a leader may wait before it answers a follower.", at_least(0)),
    ConfigKey("replica.fetch.backoff.ms", INT, "1000", "A follower's pause after an error.", at_least(0)),
    ConfigKey("replica.socket.timeout.ms", INT, "30000", "A follower's patience with a silent leader.", at_least(1)),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, "5000", "How often high watermarks are written.", at_least(1)),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", at_least(1)),
    ConfigKey("log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", at_least(1)),
    ConfigKey("log.scrub.bytes.per.second", LONG, "1048576", "How fast stored batches are read again to find damage, a pass an hour at most; 0 for never. Kafka has no such key.", at_least(0)),
    ConfigKey("fetch.max.bytes", INT, "57671680", "The most bytes in one Fetch answer.", at_least(1024)),
    ConfigKey("socket.request.max.bytes", INT, "104857600", "The largest request taken.", at_least(1)),
    dynamic_key("max.connections", INT, "2147483647", "Connections per broker.", at_least(0)),
    dynamic_key("max.connections.per.ip", INT, "2147483647", "Connections from one address.", at_least(0)),
    ConfigKey("connections.max.idle.ms", LONG, "600000", "Idle connections are closed after this."),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, "true", "Hand over leaderships before stopping."),
    dynamic_key("producer.id.expiration.ms", INT, "86400000", "How long an idle producer's sequence is remembered.", at_least(1)),
    ConfigKey("pykraft.sendfile", BOOLEAN, "false", "Send fetched records by sendfile. Over loopback the receiver pays what the broker saves: measure on your network."),
)  # fmt: skip

COORDINATOR_KEYS: Final = table(
    ConfigKey("group.min.session.timeout.ms", INT, "6000", "The shortest session a classic member may ask for."),
    ConfigKey("group.max.session.timeout.ms", INT, "1800000", "The longest session a classic member may ask for."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, "3000", "How long an empty classic group waits for more members."),
    ConfigKey("group.max.size", INT, "2147483647", "Members of a classic group.", at_least(1)),
    ConfigKey("group.consumer.session.timeout.ms", INT, "45000", "Session of consumer-protocol members.", at_least(1)),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, "5000", "Heartbeat interval told to members.", at_least(1)),
    ConfigKey("group.consumer.max.size", INT, "2147483647", "Members of a consumer group.", at_least(1)),
    ConfigKey("group.consumer.assignors", LIST, "uniform,range", "Server-side assignors, the default first.", one_of("uniform", "range")),
    ConfigKey("group.coordinator.rebalance.protocols", LIST, "classic,consumer", "Protocols that groups may use.", one_of("classic", "consumer")),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", "Bytes of metadata text with a committed offset."),
    ConfigKey("offsets.commit.timeout.ms", INT, "5000", "How long an offset commit may take to replicate.", at_least(1)),
    ConfigKey("offsets.retention.minutes", INT, "10080", "How long offsets of an empty group are kept.", at_least(1)),
    ConfigKey("offsets.retention.check.interval.ms", LONG, "600000", "How often expired offsets are looked for.", at_least(1)),
)  # fmt: skip

READ_KEYS: Final = {**NODE_KEYS, **QUORUM_KEYS, **BROKER_KEYS, **COORDINATOR_KEYS}
"""What a node reads of its properties file, beside what holds for topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInKey(ConfigKey):
    """A property that is read where the one it ``stands_for`` is not given; its unit is ``factor`` times as large."""

    stands_for: str
    factor: int

    def convert(self, text: str) -> str:
        """The value for ``stands_for``, where any negative number means no limit."""
        number = self.parse(text)
        assert isinstance(number, int)
        return str(number * self.factor if number >= 0 else -1)


def _stand_in(
    name: str,
    kind: ConfigType,
    stands_for: str,
    factor: int,
    has_default: bool,
    validator: Validator | None = None,
) -> StandInKey:
    finest = TOPIC_KEYS[SERVER_PROPERTY_TO_TOPIC[stands_for]].default
    default = str(int(finest or "") // factor) if has_default else None
    documentation = f"Stands for {stands_for}, where that is not given."
    return StandInKey(name, kind, default, documentation, validator, stands_for=stands_for, factor=factor)


STAND_IN_KEYS: Final = table(
    _stand_in("log.flush.scheduler.interval.ms", LONG, "log.flush.interval.ms", 1, True, at_least(0)),
    _stand_in("log.retention.minutes", INT, "log.retention.ms", 60_000, False),
    _stand_in("log.retention.hours", INT, "log.retention.ms", 3_600_000, True),
    _stand_in("log.roll.hours", INT, "log.roll.ms", 3_600_000, True, at_least(1)),
    _stand_in("log.roll.jitter.hours", INT, "log.roll.jitter.ms", 3_600_000, True, at_least(0)),
)  # fmt: skip
"""Of several for one property the first that is given holds. They have its default, as in Kafka."""

_NAMES: Final[dict[str, list[str]]] = {}
for _key in STAND_IN_KEYS.values():
    _NAMES.setdefault(_key.stands_for, [_key.stands_for]).append(_key.name)


def names_of(server_property: str) -> Sequence[str]:
    """Under which names a property may be given: its own, then those that stand for it."""
    return _NAMES.get(server_property, (server_property,))


TOPIC_DEFAULT_KEYS: Final = table(
    *(
        dynamic_key(
            key.server_property,
            key.type,
            None if key.server_property in _NAMES else key.default,
            key.documentation,
            key.validator,
        )
        for key in TOPIC_KEYS.values()
        if key.server_property
    )
)
"""What holds for topics that set nothing themselves."""

SERVER_KEYS: Final[Mapping[str, ConfigKey]] = {
    **READ_KEYS, **TOPIC_DEFAULT_KEYS, **STAND_IN_KEYS, **STORED_KEYS, **STATIC_KEYS
}  # fmt: skip
"""Everything that a broker is described with."""

DYNAMIC_KEYS: Final[Mapping[str, ConfigKey]] = {
    name: key for name, key in {**SERVER_KEYS, **THROTTLE_KEYS}.items() if key.is_dynamic
}
"""What can be changed while brokers run (KIP-226). Every other property is read when a node starts."""

UNREAD_NAMES: Final = STORED_KEYS.keys() | STATIC_KEYS.keys() | THROTTLE_KEYS.keys() | INTERNAL_NAMES
"""What has no effect in a properties file."""

KNOWN_NAMES: Final = SERVER_KEYS.keys() | UNREAD_NAMES


def topic_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """What a properties file says of topics, by topic configuration. :class:`ConfigError` if it is not allowed."""
    defaults = {}
    for key in TOPIC_KEYS.values():
        for name in names_of(key.server_property):
            if name in given:
                SERVER_KEYS[name].parse(given[name])
                defaults[key.name] = in_its_unit(name, given[name])
                break
    return defaults


def in_its_unit(name: str, text: str) -> str:
    """The value of the property that ``name`` is or stands for."""
    stand_in = STAND_IN_KEYS.get(name)
    return text if stand_in is None else stand_in.convert(text)
