"""The server properties pykraft uses: Kafka's names, types, defaults and units.

Topic configs with a broker-wide synonym (``log.segment.bytes`` …) are not listed here: they come from
:mod:`pykraft.metadata_log.topic_configs`.
"""

from __future__ import annotations

from pykraft.metadata_log.broker_configs import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    PRODUCER_ID_EXPIRATION_MS,
)
from pykraft.runtime.properties import ConfigKey, ConfigType, at_least, one_of

_BOOL, _STRING, _INT, _LONG, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)


def _table(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


NODE_KEYS = _table(
    ConfigKey("process.roles", _LIST, None, "broker, controller or both.", one_of("broker", "controller")),
    ConfigKey("node.id", _INT, None, "The id of this node, unique in the cluster.", at_least(0)),
    ConfigKey("listeners", _LIST, None, "NAME://host:port of every socket this node opens."),
    ConfigKey("advertised.listeners", _LIST, None, "What clients are told instead of the listeners."),
    ConfigKey("controller.listener.names", _LIST, None, "Which listeners belong to the controller: the first is the quorum's own (gRPC), the others are for clients (Kafka's protocol)."),
    ConfigKey("inter.broker.listener.name", _STRING, None, "The listener brokers use among themselves."),
    ConfigKey("listener.security.protocol.map", _LIST, None, "NAME:PROTOCOL pairs; only PLAINTEXT is served so far."),
    ConfigKey("controller.quorum.voters", _LIST, None, "id@host:port of every voter, where the voters are fixed."),
    ConfigKey("controller.quorum.bootstrap.servers", _LIST, None, "host:port of controllers to ask for the leader, where the voters are in the log."),
    ConfigKey("controller.quorum.auto.join.enable", _BOOL, "false", "A controller that is no voter asks to become one."),
    ConfigKey("log.dir", _STRING, "/tmp/kafka-logs", "The data directory, where log.dirs is not given."),
    ConfigKey("log.dirs", _LIST, None, "The data directories."),
    ConfigKey("metadata.log.dir", _STRING, None, "Where the metadata log lives; the first of log.dirs by default."),
    ConfigKey("broker.rack", _STRING, None, "The rack of this broker, for placement."),
)  # fmt: skip

QUORUM_KEYS = _table(
    ConfigKey("controller.quorum.election.timeout.ms", _INT, "1000", "How long a candidate waits for votes.", at_least(0)),
    ConfigKey("controller.quorum.fetch.timeout.ms", _INT, "2000", "How long without a successful fetch until an election.", at_least(0)),
    ConfigKey("controller.quorum.election.backoff.max.ms", _INT, "1000", "The longest pause after a lost election.", at_least(0)),
    ConfigKey("controller.quorum.request.timeout.ms", _INT, "2000", "The deadline of one quorum request.", at_least(1)),
    ConfigKey("controller.quorum.retry.backoff.ms", _INT, "20", "The pause before a failed quorum request is sent again.", at_least(0)),
    ConfigKey("controller.quorum.fetch.max.bytes", _INT, "1048576", "Bytes of records in one answer of the quorum's leader.", at_least(1)),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", _INT, "1048576", "Bytes of a snapshot in one answer of the quorum's leader.", at_least(1)),
    ConfigKey("metadata.log.segment.bytes", _INT, "1073741824", "The size at which the metadata log starts a new segment.", at_least(12)),
    ConfigKey("metadata.log.segment.ms", _LONG, "604800000", "The age at which the metadata log starts a new segment.", at_least(1)),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", _LONG, "20971520", "Bytes of committed metadata log behind the last snapshot at which this node writes the next.", at_least(1)),
    ConfigKey("metadata.log.max.snapshot.interval.ms", _LONG, "3600000", "The age of the last snapshot at which this node writes the next, if anything was committed since; 0 for no such bound.", at_least(0)),
    ConfigKey("metadata.max.retention.bytes", _LONG, "104857600", "Metadata log and snapshots together: beyond this the log before a snapshot, and older snapshots, go."),
    ConfigKey("metadata.max.retention.ms", _LONG, "604800000", "The age at which the metadata log before a snapshot, and older snapshots, go."),
    ConfigKey("metadata.max.idle.interval.ms", _INT, "0", "The active controller writes a record that changes nothing after this long without another; 0 (Kafka: 500) for only what the leases of brokers need.", at_least(0)),
)  # fmt: skip

BROKER_KEYS = _table(
    ConfigKey("broker.heartbeat.interval.ms", _INT, "2000", "How often a broker reports to the controller.", at_least(1)),
    ConfigKey(
        "broker.session.timeout.ms",
        _INT,
        "9000",
        "How long a broker stays unfenced that is silent, or gets no further in the metadata log. "
        "The same on all controllers, but while it is changed.",
        at_least(1),
    ),
    ConfigKey("initial.broker.registration.timeout.ms", _INT, "60000", "How long a starting broker waits for the controller.", at_least(1)),
    ConfigKey("auto.create.topics.enable", _BOOL, "true", "Create a topic when a client asks for one that is missing."),
    ConfigKey("auto.leader.rebalance.enable", _BOOL, "true", "Give leaderships back to the preferred replicas from time to time."),
    ConfigKey("leader.imbalance.check.interval.seconds", _LONG, "300", "How often leaderships are looked at for that.", at_least(1)),
    ConfigKey("leader.imbalance.per.broker.percentage", _INT, "10", "How much of what prefers a broker others may lead.", at_least(0)),
    ConfigKey("num.partitions", _INT, "1", "Partitions of a topic created without a number.", at_least(1)),
    ConfigKey("default.replication.factor", _INT, "1", "Replicas of a topic created without a number.", at_least(1)),
    ConfigKey("offsets.topic.num.partitions", _INT, "50", "Partitions of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.replication.factor", ConfigType.SHORT, "3", "Replicas of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", _INT, "104857600", "Segment size of __consumer_offsets.", at_least(1)),
    ConfigKey("replica.lag.time.max.ms", _LONG, "30000", "How long a follower may lag before it leaves the ISR.", at_least(1)),
    ConfigKey("replica.fetch.max.bytes", _INT, "1048576", "Bytes a follower fetches of one partition.", at_least(0)),
    ConfigKey("replica.fetch.response.max.bytes", _INT, "10485760", "Bytes a follower fetches at once.", at_least(0)),
    ConfigKey("replica.fetch.min.bytes", _INT, "1", "Bytes a leader waits for before it answers a follower.", at_least(0)),
    ConfigKey("replica.fetch.wait.max.ms", _INT, "500", "How long a leader may wait before it answers a follower.", at_least(0)),
    ConfigKey("replica.fetch.backoff.ms", _INT, "1000", "A follower's pause after an error.", at_least(0)),
    ConfigKey("replica.socket.timeout.ms", _INT, "30000", "A follower's patience with a silent leader.", at_least(1)),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000", "How often high watermarks are written.", at_least(1)),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", _INT, "60000", "How often recovery points are written.", at_least(1)),
    ConfigKey("log.retention.check.interval.ms", _LONG, "300000", "How often old segments are looked for.", at_least(1)),
    ConfigKey("log.scrub.bytes.per.second", _LONG, "1048576", "How fast stored batches are read again to find damage, a pass an hour at most; 0 for never. Kafka has no such key.", at_least(0)),
    ConfigKey("fetch.max.bytes", _INT, "57671680", "The most bytes in one Fetch answer.", at_least(1024)),
    ConfigKey("socket.request.max.bytes", _INT, "104857600", "The largest request taken.", at_least(1)),
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    ConfigKey("connections.max.idle.ms", _LONG, "600000", "Idle connections are closed after this."),
    ConfigKey("controlled.shutdown.enable", _BOOL, "true", "Hand over leaderships before stopping."),
    PRODUCER_ID_EXPIRATION_MS,
    ConfigKey("pykraft.sendfile", _BOOL, "false", "Send fetched records by sendfile. Over loopback the receiver pays what the broker saves: measure on your network."),
)  # fmt: skip

GROUP_KEYS = _table(
    ConfigKey("group.min.session.timeout.ms", _INT, "6000", "The shortest session a classic member may ask for."),
    ConfigKey("group.max.session.timeout.ms", _INT, "1800000", "The longest session a classic member may ask for."),
    ConfigKey("group.initial.rebalance.delay.ms", _INT, "3000", "How long an empty classic group waits for more members."),
    ConfigKey("group.max.size", _INT, "2147483647", "Members of a classic group.", at_least(1)),
    ConfigKey("group.consumer.session.timeout.ms", _INT, "45000", "Session of consumer-protocol members.", at_least(1)),
    ConfigKey("group.consumer.heartbeat.interval.ms", _INT, "5000", "Heartbeat interval told to members.", at_least(1)),
    ConfigKey("group.consumer.max.size", _INT, "2147483647", "Members of a consumer group.", at_least(1)),
    ConfigKey("group.consumer.assignors", _LIST, "uniform,range", "Server-side assignors, the default first.", one_of("uniform", "range")),
    ConfigKey("group.coordinator.rebalance.protocols", _LIST, "classic,consumer", "Protocols that groups may use.", one_of("classic", "consumer")),
    ConfigKey("offset.metadata.max.bytes", _INT, "4096", "Bytes of metadata text with a committed offset."),
    ConfigKey("offsets.commit.timeout.ms", _INT, "5000", "How long an offset commit may take to replicate.", at_least(1)),
    ConfigKey("offsets.retention.minutes", _INT, "10080", "How long offsets of an empty group are kept.", at_least(1)),
    ConfigKey("offsets.retention.check.interval.ms", _LONG, "600000", "How often expired offsets are looked for.", at_least(1)),
)  # fmt: skip

SERVER_KEYS = NODE_KEYS | QUORUM_KEYS | BROKER_KEYS | GROUP_KEYS
