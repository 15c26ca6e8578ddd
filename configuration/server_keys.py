"""Server properties with Kafka's names, types, defaults and units: those a node reads, and all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.configuration.kafka_keys import INTERNAL_NAMES, STATIC_KEYS, STORED_KEYS, THROTTLE_KEYS
from pykraft.configuration.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    ConfigKey,
    ConfigType,
    UpdateMode,
    Validator,
    at_least,
    dynamic_key,
    one_of,
    table,
)
from pykraft.configuration.topic_keys import SERVER_PROPERTY_TO_TOPIC, TOPIC_KEYS, check_topic_values
from pykraft.lazy_dataclass import dataclass

NODE_KEYS: Final = table(
    ConfigKey("process.roles", LIST, None, "broker, controller or both.", one_of("broker", "controller")),
    ConfigKey("node.id", INT, None, "The id of this node, unique in the cluster.", at_least(0)),
    ConfigKey("listeners", LIST, None, "NAME://host:port of every socket this node opens."),
    ConfigKey("advertised.listeners", LIST, None, "The addresses that clients receive, if not those of the listeners."),
    ConfigKey("controller.listener.names", LIST, None, "The listeners of the controller: the first is the quorum's own (gRPC), the others are for clients (Kafka's protocol)."),
    ConfigKey("inter.broker.listener.name", STRING, None, "The listener that brokers use among each other."),
    ConfigKey("listener.security.protocol.map", LIST, None, "NAME:PROTOCOL pairs; only PLAINTEXT is served so far."),
    ConfigKey("controller.quorum.voters", LIST, None, "id@host:port of every voter, if the voters are fixed."),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, None, "host:port of controllers to ask for the leader, if the voters are in the log."),
    ConfigKey("controller.quorum.auto.join.enable", BOOLEAN, "false", "A controller that is not a voter requests to become one."),
    ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The data directories, if log.dirs is not given."),
    ConfigKey("log.dirs", LIST, None, "The data directories."),
    ConfigKey("metadata.log.dir", STRING, None, "The directory of the metadata log; the first of log.dirs by default."),
    ConfigKey("broker.rack", STRING, None, "The rack of this broker, for placement."),
    ConfigKey("pykraft.http.listener", STRING, None, "host:port of metrics, health checks and the web console, without authentication; none by default. Port 0: a free one."),
    ConfigKey("pykraft.http.allowed.hosts", LIST, "", "Names under which clients reach pykraft.http.listener, besides IP addresses, localhost and its own host. Requests for other names are refused."),
    ConfigKey("pykraft.http.console", STRING, "read-only", "What the web console may do: nothing, show, or also produce records.", one_of("off", "read-only", "produce")),
    ConfigKey("pykraft.slow.request.log.ms", LONG, "0", "Requests of clients that take this time or longer are logged; 0 for none. A Fetch may wait for its own maximum.", at_least(0)),
)  # fmt: skip

QUORUM_KEYS: Final = table(
    ConfigKey("controller.quorum.election.timeout.ms", INT, "1000", "How long a candidate waits for votes.", at_least(1)),
    ConfigKey("controller.quorum.fetch.timeout.ms", INT, "2000", "The time without a successful fetch after which a voter starts an election.", at_least(1)),
    ConfigKey("controller.quorum.election.backoff.max.ms", INT, "1000", "The longest pause after a lost election.", at_least(1)),
    ConfigKey("controller.quorum.request.timeout.ms", INT, "2000", "The deadline of one quorum request.", at_least(1)),
    ConfigKey("controller.quorum.retry.backoff.ms", INT, "20", "The pause before a failed quorum request is sent again.", at_least(0)),
    ConfigKey("controller.quorum.fetch.max.bytes", INT, "1048576", "Bytes of records in one response of the quorum's leader.", at_least(1)),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576", "Bytes of a snapshot in one response of the quorum's leader.", at_least(1)),
    ConfigKey("metadata.log.segment.bytes", INT, "1073741824", "The size at which the metadata log starts a new segment.", at_least(12)),
    ConfigKey("metadata.log.segment.ms", LONG, "604800000", "The age at which the metadata log starts a new segment.", at_least(1)),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", "Bytes of committed metadata log after the last snapshot at which this node writes the next.", at_least(1)),
    ConfigKey("metadata.log.max.snapshot.interval.ms", LONG, "3600000", "The age of the last snapshot at which this node writes the next, if anything was committed since; 0 for no such limit.", at_least(0)),
    ConfigKey("metadata.max.retention.bytes", LONG, "104857600", "The size of metadata log and snapshots together above which the log before a snapshot, and older snapshots, are deleted."),
    ConfigKey("metadata.max.retention.ms", LONG, "604800000", "The age at which the metadata log before a snapshot, and older snapshots, are deleted."),
    ConfigKey("metadata.max.idle.interval.ms", INT, "0", "The active controller writes a record that changes nothing after this time without another; 0 (Kafka: 500) for only those that the leases of brokers need.", at_least(0)),
)  # fmt: skip

BROKER_KEYS: Final = table(
    ConfigKey("broker.heartbeat.interval.ms", INT, "2000", "How often a broker sends a heartbeat to the controller.", at_least(1)),
    ConfigKey("broker.session.timeout.ms", INT, "9000", "The time after which a broker is fenced that sends no heartbeat, or does not advance in the metadata log. Must be equal on all controllers, except while it is being changed.", at_least(1)),
    ConfigKey("initial.broker.registration.timeout.ms", INT, "60000", "How long a starting broker tries to register while another process has its id. It waits for a controller without limit.", at_least(1)),
    ConfigKey("auto.create.topics.enable", BOOLEAN, "true", "Create a missing topic when a client requests it."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, "true", "Periodically return leaderships to the preferred replicas."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, "300", "How often the balance of leaderships is checked.", at_least(1)),
    ConfigKey("leader.imbalance.per.broker.percentage", INT, "10", "The percentage of the partitions preferring a broker that others may lead.", at_least(0)),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    ConfigKey("num.partitions", INT, "1", "Partitions of a topic that is created without a number.", at_least(1)),
    ConfigKey("default.replication.factor", INT, "1", "Replicas of a topic that is created without a number.", at_least(1)),
    ConfigKey("offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.replication.factor", SHORT, "3", "Replicas of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", "Segment size of __consumer_offsets.", at_least(1)),
    ConfigKey("replica.selector.class", STRING, None, "The rule by which consumers with a client.rack read from followers (KIP-392), by its Kafka class; without one, from leaders.", one_of("org.apache.kafka.common.replica.LeaderSelector", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
    ConfigKey("replica.lag.time.max.ms", LONG, "30000", "How long a follower may lag before it leaves the ISR.", at_least(1)),
    ConfigKey("cordoned.log.dirs", LIST, "", "Directories of log.dirs that get no new replicas; * for all (KIP-1066).", update_mode=UpdateMode.PER_BROKER),
    dynamic_key("num.replica.fetchers", INT, "1", "Connections on which a follower fetches from each leader.", at_least(1)),
    ConfigKey("replica.fetch.max.bytes", INT, "1048576", "Bytes that a follower fetches of one partition.", at_least(0)),
    ConfigKey("replica.fetch.response.max.bytes", INT, "10485760", "Bytes that a follower fetches at once.", at_least(0)),
    ConfigKey("replica.fetch.min.bytes", INT, "1", "Bytes that a leader waits for before it responds to a follower.", at_least(0)),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", "How long a leader may wait before it responds to a follower.", at_least(0)),
    ConfigKey("replica.fetch.backoff.ms", INT, "1000", "A follower's pause after an error.", at_least(0)),
    ConfigKey("replica.socket.timeout.ms", INT, "30000", "How long a follower waits for a leader's response.", at_least(1)),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, "5000", "How often high watermarks are written.", at_least(1)),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", at_least(1)),
    ConfigKey("log.dir.failure.timeout.ms", LONG, "30000", "A broker that cannot tell the controller for this time that a log directory failed halts.", at_least(1)),
    ConfigKey("log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", at_least(1)),
    dynamic_key("log.cleaner.backoff.ms", LONG, "15000", "How often a broker looks for logs to compact when there were none.", at_least(0)),
    dynamic_key("log.cleaner.dedupe.buffer.size", LONG, "134217728", "Memory for the keys of the logs that are being compacted, 192 bytes a key (Kafka: 24). A log with more new keys takes several rounds.", at_least(0)),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true", "Whether logs are compacted."),
    dynamic_key("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", "How full the memory for keys may get.", at_least(0)),
    dynamic_key("log.cleaner.io.buffer.size", INT, "524288", "Bytes that compaction reads and writes in one step.", at_least(0)),
    dynamic_key("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", "Bytes a second that compaction reads and writes at most.", at_least(0)),
    dynamic_key("log.cleaner.threads", INT, "1", "Logs that are compacted at the same time; 0 for none.", at_least(0)),
    ConfigKey("log.scrub.bytes.per.second", LONG, "1048576", "How fast stored batches are read again to find damage, at most once an hour; 0 for never. Kafka has no such key.", at_least(0)),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, "1000", "The most fetch sessions (KIP-227) that a broker keeps for consumers and followers.", at_least(0)),
    ConfigKey("fetch.max.bytes", INT, "57671680", "The most bytes in one Fetch response.", at_least(1024)),
    ConfigKey("socket.request.max.bytes", INT, "104857600", "The largest request accepted.", at_least(1)),
    dynamic_key("max.connections", INT, "2147483647", "The most connections of a broker; others wait.", at_least(0)),
    dynamic_key("max.connections.per.ip", INT, "2147483647", "The most connections from one address.", at_least(0)),
    ConfigKey("connections.max.idle.ms", LONG, "600000", "Connections that are idle for this time are closed."),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, "true", "Hand over leaderships before stopping."),
    dynamic_key("producer.id.expiration.ms", INT, "86400000", "How long an idle producer's sequence is remembered.", at_least(1)),
    dynamic_key("transaction.partition.verification.enable", BOOLEAN, "true", "Check with the coordinator that a partition belongs to a transaction."),
    ConfigKey("pykraft.transaction.markers.from.clients", STRING, "abort", "What WriteTxnMarkers may do for clients that are not brokers of this cluster: nothing, abort an open transaction (as tools do with one that hangs), or anything.", one_of("none", "abort", "any")),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", "How long a leader tries to add a partition to a transaction while the one before is being ended.", at_least(0)),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, "20", "The longest pause before it tries again; the first ones are shorter.", at_least(1)),
    ConfigKey("pykraft.sendfile", BOOLEAN, "false", "Send fetched records by sendfile. Over loopback the receiver pays for what the broker saves: measure on your network."),
)  # fmt: skip

COORDINATOR_KEYS: Final = table(
    ConfigKey("group.min.session.timeout.ms", INT, "6000", "The shortest session timeout of a classic member."),
    ConfigKey("group.max.session.timeout.ms", INT, "1800000", "The longest session timeout of a classic member."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, "3000", "How long an empty classic group waits for more members."),
    ConfigKey("group.max.size", INT, "2147483647", "The most members of a classic group.", at_least(1)),
    ConfigKey("group.consumer.session.timeout.ms", INT, "45000", "The session timeout of members with the consumer protocol.", at_least(1)),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, "5000", "The heartbeat interval of members with the consumer protocol.", at_least(1)),
    dynamic_key("group.consumer.assignment.interval.ms", INT, "1000", "The shortest time between two assignments of a consumer group (KIP-1263); 0 for none.", at_least(0)),
    ConfigKey("pykraft.group.consumer.heartbeats.per.second", INT, "50", "Members of the consumer protocol are asked for heartbeats sooner than after their interval, down to one a second each, while a broker gets no more than this from all of them; 0 for never. Not for groups with an interval of their own. Kafka has no such key.", at_least(0)),
    ConfigKey("group.consumer.min.session.timeout.ms", INT, "45000", "The shortest session timeout that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.max.session.timeout.ms", INT, "60000", "The longest session timeout that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", INT, "5000", "The shortest heartbeat interval that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", INT, "15000", "The longest heartbeat interval that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.min.assignment.interval.ms", INT, "0", "The least that a consumer group may set for its assignment interval.", at_least(0)),
    ConfigKey("group.consumer.max.assignment.interval.ms", INT, "15000", "The most that a consumer group may set for its assignment interval.", at_least(0)),
    ConfigKey("group.consumer.max.size", INT, "2147483647", "The most members of a consumer group.", at_least(1)),
    ConfigKey("group.consumer.migration.policy", STRING, "bidirectional", "Which way a group with members may change its protocol while it runs: upgrade to the consumer protocol, downgrade to the classic one. Empty groups may both.", one_of("disabled", "downgrade", "upgrade", "bidirectional", any_case=True)),
    ConfigKey("group.consumer.assignors", LIST, "uniform,range", "Server-side assignors, the default first.", one_of("uniform", "range")),
    ConfigKey("group.coordinator.rebalance.protocols", LIST, "classic,consumer", "Protocols that groups may use; share and streams have no effect yet.", one_of("classic", "consumer", "share", "streams")),
    ConfigKey("group.coordinator.append.linger.ms", INT, "-1", "How long the group coordinator collects records before it writes them as one batch. -1: until everything that has arrived is handled.", at_least(-1)),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", "The most bytes of the metadata text of a committed offset."),
    ConfigKey("offsets.commit.timeout.ms", INT, "5000", "How long an offset commit may take to replicate.", at_least(1)),
    ConfigKey("offsets.retention.minutes", INT, "10080", "How long offsets of an empty group are kept.", at_least(1)),
    ConfigKey("offsets.retention.check.interval.ms", LONG, "600000", "How often expired offsets are looked for.", at_least(1)),
)  # fmt: skip

TRANSACTION_KEYS: Final = table(
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", "How often timed-out transactions are looked for."),
    ConfigKey("transaction.max.timeout.ms", INT, "900000", "The longest timeout of a transaction."),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", "How often expired transactional ids are looked for."),
    ConfigKey("transaction.state.log.min.isr", INT, "2", "min.insync.replicas of __transaction_state."),
    ConfigKey("transaction.state.log.num.partitions", INT, "50", "Partitions of __transaction_state."),
    ConfigKey("transaction.state.log.replication.factor", SHORT, "3", "Replicas of __transaction_state."),
    ConfigKey("transaction.state.log.segment.bytes", INT, "104857600", "Segment size of __transaction_state."),
    ConfigKey("transactional.id.expiration.ms", INT, "604800000", "How long an unused transactional id is remembered."),
)  # fmt: skip

INTERNAL_KEYS: Final = table(
    ConfigKey("group.consumer.regex.refresh.interval.ms", INT, "600000", "How often the regular expressions of a consumer group are resolved again although no topic was created.", at_least(10_000)),
)  # fmt: skip
"""Properties that Kafka reads but does not describe."""

READ_KEYS: Final = {
    **NODE_KEYS,
    **QUORUM_KEYS,
    **BROKER_KEYS,
    **COORDINATOR_KEYS,
    **TRANSACTION_KEYS,
    **INTERNAL_KEYS,
}
"""The properties that a node reads from its properties file, besides the defaults of topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynonymKey(ConfigKey):
    """A property that is read if the one it ``synonym_of`` is not given; its unit is ``factor`` times
    larger.
    """

    synonym_of: str
    factor: int

    def convert(self, text: str) -> str:
        """The value for ``synonym_of``; any negative number means no limit."""
        number = self.parse(text)
        assert isinstance(number, int)
        return str(number * self.factor if number >= 0 else -1)


def _synonym(
    name: str,
    kind: ConfigType,
    synonym_of: str,
    factor: int,
    has_default: bool,
    validator: Validator | None = None,
) -> SynonymKey:
    finest = TOPIC_KEYS[SERVER_PROPERTY_TO_TOPIC[synonym_of]].default
    default = str(int(finest or "") // factor) if has_default else None
    documentation = f"Used for {synonym_of} if that is not given."
    return SynonymKey(name, kind, default, documentation, validator, synonym_of=synonym_of, factor=factor)


SYNONYM_KEYS: Final = table(
    _synonym("log.flush.scheduler.interval.ms", LONG, "log.flush.interval.ms", 1, True, at_least(0)),
    _synonym("log.retention.minutes", INT, "log.retention.ms", 60_000, False),
    _synonym("log.retention.hours", INT, "log.retention.ms", 3_600_000, True),
    _synonym("log.roll.hours", INT, "log.roll.ms", 3_600_000, True, at_least(1)),
    _synonym("log.roll.jitter.hours", INT, "log.roll.jitter.ms", 3_600_000, True, at_least(0)),
)  # fmt: skip
"""If several are given for one property, the first applies. They have its default, as in Kafka."""

_NAMES: Final[dict[str, list[str]]] = {}
for _key in SYNONYM_KEYS.values():
    _NAMES.setdefault(_key.synonym_of, [_key.synonym_of]).append(_key.name)


def names_of(server_property: str) -> Sequence[str]:
    """The names under which a property may be given: its own, then those that stand for it."""
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
"""The defaults of topic configurations."""

SERVER_KEYS: Final[Mapping[str, ConfigKey]] = {
    **NODE_KEYS, **QUORUM_KEYS, **BROKER_KEYS, **COORDINATOR_KEYS, **TRANSACTION_KEYS,
    **TOPIC_DEFAULT_KEYS, **SYNONYM_KEYS, **STORED_KEYS, **STATIC_KEYS,
}  # fmt: skip
"""All properties in the description of a broker."""

DYNAMIC_KEYS: Final[Mapping[str, ConfigKey]] = {
    name: key for name, key in {**SERVER_KEYS, **THROTTLE_KEYS}.items() if key.is_dynamic
}
"""The properties that can be changed while brokers run (KIP-226). All others are read when a node starts."""

UNREAD_NAMES: Final = STORED_KEYS.keys() | STATIC_KEYS.keys() | THROTTLE_KEYS.keys() | INTERNAL_NAMES
"""Properties without an effect in a properties file."""

KNOWN_NAMES: Final = SERVER_KEYS.keys() | INTERNAL_KEYS.keys() | UNREAD_NAMES


def topic_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """The defaults of topics in a properties file, by topic configuration. :class:`ConfigError` if
    invalid.
    """
    defaults = {}
    for key in TOPIC_KEYS.values():
        if not key.server_property:
            continue
        for name in names_of(key.server_property):
            if name in given:
                SERVER_KEYS[name].parse(given[name])
                defaults[key.name] = in_its_unit(name, given[name])
                break
    check_topic_values(defaults)
    return defaults


def in_its_unit(name: str, text: str) -> str:
    """The value in the unit of the property that ``name`` is or stands for."""
    synonym = SYNONYM_KEYS.get(name)
    return text if synonym is None else synonym.convert(text)
