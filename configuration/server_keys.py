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
    ConfigKey("controller.listener.names", LIST, None, "The controller's listeners: first the quorum's (gRPC), then those for clients (Kafka's protocol)."),
    ConfigKey("inter.broker.listener.name", STRING, None, "The listener that brokers use among each other."),
    ConfigKey("listener.security.protocol.map", LIST, None, "NAME:PROTOCOL pairs; only PLAINTEXT is served so far."),
    ConfigKey("controller.quorum.voters", LIST, None, "id@host:port of every voter, if the voters are fixed."),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, None, "host:port of controllers to ask for the leader, if the voters are in the log."),
    ConfigKey("controller.quorum.auto.join.enable", BOOLEAN, "false", "A controller that is not a voter requests to become one."),
    ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The data directories, if log.dirs is not given."),
    ConfigKey("log.dirs", LIST, None, "The data directories."),
    ConfigKey("metadata.log.dir", STRING, None, "The directory of the metadata log; the first of log.dirs by default."),
    ConfigKey("broker.rack", STRING, None, "The rack of this broker, for placement."),
    ConfigKey("pykraft.http.listener", STRING, None, "host:port of metrics, health checks and the web console; there is no authentication."),
    ConfigKey("pykraft.http.allowed.hosts", LIST, "", "Further names under which clients may reach pykraft.http.listener."),
    ConfigKey("pykraft.http.console", STRING, "read-only", "What the web console may do: nothing, show, or also produce records.", one_of("off", "read-only", "produce")),
    ConfigKey("pykraft.slow.request.log.ms", LONG, "0", "Requests that take this long are logged; 0 for none.", at_least(0)),
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
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", "Bytes of committed metadata log between two snapshots.", at_least(1)),
    ConfigKey("metadata.log.max.snapshot.interval.ms", LONG, "3600000", "The longest time between two snapshots, if anything was committed; 0 for no limit.", at_least(0)),
    ConfigKey("metadata.max.retention.bytes", LONG, "104857600", "The size of metadata log and snapshots above which old ones are deleted."),
    ConfigKey("metadata.max.retention.ms", LONG, "604800000", "The age at which old metadata log and snapshots are deleted."),
    ConfigKey("metadata.max.idle.interval.ms", INT, "0", "An idle active controller writes a record this often; 0 (Kafka: 500) for as often as leases need.", at_least(0)),
)  # fmt: skip

BROKER_KEYS: Final = table(
    ConfigKey("broker.heartbeat.interval.ms", INT, "2000", "How often a broker sends a heartbeat to the controller.", at_least(1)),
    ConfigKey("broker.session.timeout.ms", INT, "9000", "A broker without heartbeats, or without progress in the metadata log, is fenced after this time. Must be equal on all controllers.", at_least(1)),
    ConfigKey("initial.broker.registration.timeout.ms", INT, "60000", "How long a starting broker tries to register while another process has its id.", at_least(1)),
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
    ConfigKey("replica.selector.class", STRING, None, "Which replicas consumers with a client.rack read from (KIP-392): a class of Kafka.", one_of("org.apache.kafka.common.replica.LeaderSelector", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
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
    ConfigKey("log.dir.failure.timeout.ms", LONG, "30000", "A broker halts if it cannot report a failed log directory for this long.", at_least(1)),
    ConfigKey("log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", at_least(1)),
    dynamic_key("log.cleaner.backoff.ms", LONG, "15000", "How often a broker looks for logs to compact when there were none.", at_least(0)),
    dynamic_key("log.cleaner.dedupe.buffer.size", LONG, "134217728", "Memory for keys during compaction, 192 bytes each (Kafka: 24).", at_least(0)),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true", "Whether logs are compacted."),
    dynamic_key("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", "How full the memory for keys may get.", at_least(0)),
    dynamic_key("log.cleaner.io.buffer.size", INT, "524288", "Bytes that compaction reads and writes in one step.", at_least(0)),
    dynamic_key("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", "Bytes a second that compaction reads and writes at most.", at_least(0)),
    dynamic_key("log.cleaner.threads", INT, "1", "Logs that are compacted at the same time; 0 for none.", at_least(0)),
    ConfigKey("log.scrub.bytes.per.second", LONG, "1048576", "How fast stored batches are read again to find damage; 0 for never.", at_least(0)),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, "1000", "The most fetch sessions (KIP-227) that a broker keeps for consumers and followers.", at_least(0)),
    ConfigKey("fetch.max.bytes", INT, "57671680", "The most bytes in one Fetch response.", at_least(1024)),
    ConfigKey("socket.receive.buffer.bytes", INT, "102400", "Receive buffer of clients' sockets; -1: as the system decides.", at_least(-1)),
    ConfigKey("socket.send.buffer.bytes", INT, "102400", "Send buffer of clients' sockets; -1: as the system decides.", at_least(-1)),
    ConfigKey("socket.request.max.bytes", INT, "104857600", "The largest request accepted.", at_least(1)),
    dynamic_key("max.connections", INT, "2147483647", "The most connections of a broker; others wait.", at_least(0)),
    dynamic_key("max.connections.per.ip", INT, "2147483647", "The most connections from one address.", at_least(0)),
    ConfigKey("connections.max.idle.ms", LONG, "600000", "Connections that are idle for this time are closed."),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, "true", "Hand over leaderships before stopping."),
    dynamic_key("producer.id.expiration.ms", INT, "86400000", "How long an idle producer's sequence is remembered.", at_least(1)),
    dynamic_key("transaction.partition.verification.enable", BOOLEAN, "true", "Check with the coordinator that a partition belongs to a transaction."),
    ConfigKey("pykraft.transaction.markers.from.clients", STRING, "abort", "What WriteTxnMarkers may do for clients that are not brokers: nothing, abort an open transaction, or anything.", one_of("none", "abort", "any")),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", "How long a leader tries to add a partition to a transaction while the previous one ends.", at_least(0)),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, "20", "The longest pause before it tries again; the first ones are shorter.", at_least(1)),
    ConfigKey("pykraft.sendfile", BOOLEAN, "true", "Send ranges of 64 KiB and more of fetched records by sendfile."),
)  # fmt: skip

COORDINATOR_KEYS: Final = table(
    ConfigKey("group.min.session.timeout.ms", INT, "6000", "The shortest session timeout of a classic member."),
    ConfigKey("group.max.session.timeout.ms", INT, "1800000", "The longest session timeout of a classic member."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, "3000", "How long an empty classic group waits for more members."),
    ConfigKey("group.max.size", INT, "2147483647", "The most members of a classic group.", at_least(1)),
    ConfigKey("group.consumer.session.timeout.ms", INT, "45000", "The session timeout of members with the consumer protocol.", at_least(1)),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, "5000", "The heartbeat interval of members with the consumer protocol.", at_least(1)),
    dynamic_key("group.consumer.assignment.interval.ms", INT, "1000", "The shortest time between two assignments of a consumer group (KIP-1263); 0 for none.", at_least(0)),
    ConfigKey("pykraft.group.consumer.heartbeats.per.second", INT, "50", "Members are asked for heartbeats sooner than configured while a broker gets no more than this; 0 for never.", at_least(0)),
    ConfigKey("group.consumer.min.session.timeout.ms", INT, "45000", "The shortest session timeout that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.max.session.timeout.ms", INT, "60000", "The longest session timeout that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", INT, "5000", "The shortest heartbeat interval that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", INT, "15000", "The longest heartbeat interval that a consumer group may set.", at_least(1)),
    ConfigKey("group.consumer.min.assignment.interval.ms", INT, "0", "The least that a consumer group may set for its assignment interval.", at_least(0)),
    ConfigKey("group.consumer.max.assignment.interval.ms", INT, "15000", "The most that a consumer group may set for its assignment interval.", at_least(0)),
    ConfigKey("group.consumer.max.size", INT, "2147483647", "The most members of a consumer group.", at_least(1)),
    ConfigKey("group.consumer.migration.policy", STRING, "bidirectional", "Which way a group with members may change its protocol.", one_of("disabled", "downgrade", "upgrade", "bidirectional", any_case=True)),
    ConfigKey("group.consumer.assignors", LIST, "uniform,range", "Server-side assignors, the default first.", one_of("uniform", "range")),
    ConfigKey("group.coordinator.rebalance.protocols", LIST, "classic,consumer", "Protocols that groups may use; share and streams have no effect yet.", one_of("classic", "consumer", "share", "streams")),
    ConfigKey("group.coordinator.append.linger.ms", INT, "-1", "How long the group coordinator collects records for one batch; -1: for one turn of the event loop.", at_least(-1)),
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
    ConfigKey("group.consumer.regex.refresh.interval.ms", INT, "600000", "How often regular expressions of a consumer group are resolved without a new topic.", at_least(10_000)),
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
    """A property that is read if the one it ``synonym_of`` is missing; its unit is ``factor`` times it."""

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
    """The defaults of topics in a properties file, by configuration; :class:`ConfigError` if invalid."""
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
