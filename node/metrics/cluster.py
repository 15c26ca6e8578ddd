"""Metrics of the metadata: the quorum, the controller, and the registration of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pykraft.broker.membership.lifecycle import BrokerState
from pykraft.metadata_log.image import MetadataImage
from pykraft.node.metrics.metric import Kind, Metric, Sample, gauge
from pykraft.node.metrics.scrape import ClusterCounts, Scrape

_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_RAFT: Final = "kafka.server:type=raft-metrics,attribute="
_STATE_NUMBERS: Final = {
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's."""


def _of_cluster(name: str, help: str, value: Callable[[ClusterCounts], int]) -> Metric:
    def read(scrape: Scrape) -> float | None:
        return value(scrape.cluster) if scrape.is_active_controller else None

    metric = f"kafka_controller_kafkacontroller_{name.lower()}"
    return gauge(metric, f"{help} Only on the active controller.", read, _CONTROLLER + name)


def _of_image(name: str, help: str, value: Callable[[MetadataImage], int]) -> Metric:
    def read(scrape: Scrape) -> float | None:
        image = scrape.image
        return None if image is None else value(image)

    metric = f"kafka_controller_kafkacontroller_{name.lower()}"
    return gauge(metric, f"{help} Only on the active controller.", read, _CONTROLLER + name)


def _raft(attribute: str, help: str, value: Callable[[Scrape], float | None]) -> Metric:
    name = f"kafka_server_raftmetrics_{attribute.replace('-', '_')}"

    def read(scrape: Scrape) -> float | None:
        return None if scrape.quorum is None else value(scrape)

    return gauge(name, help, read, _RAFT + attribute)


def _leader(scrape: Scrape) -> float:
    leader = None if scrape.quorum is None else scrape.quorum.leader_id
    return -1 if leader is None else leader


def _replica_lags(scrape: Scrape) -> Iterable[Sample]:
    """Measure the lag of each replica; only on the leader."""
    quorum = scrape.quorum
    if quorum is None or quorum.leader_id != scrape.node.config.node_id:
        return
    for kind, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for replica in replicas:
            if replica.log_end_offset >= 0:
                lag = max(0, scrape.node.quorum.log_end_offset - replica.log_end_offset)
                yield (str(replica.key.id), kind), lag


CLUSTER_METRICS: Final = (
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the active controller, 0 on the others: the sum over all nodes must be 1.",
        lambda scrape: (
            None if getattr(scrape.node, "controller", None) is None else scrape.is_active_controller
        ),
        _CONTROLLER + "ActiveControllerCount",
    ),
    _of_cluster("OfflinePartitionsCount", "Partitions without a leader.", lambda it: it.offline),
    _of_cluster(
        "PreferredReplicaImbalanceCount",
        "Partitions that their first replica does not lead.",
        lambda it: it.not_preferred,
    ),
    _of_cluster("GlobalTopicCount", "Topics.", lambda it: it.topics),
    _of_cluster("GlobalPartitionCount", "Partitions.", lambda it: it.partitions),
    _of_image(
        "ActiveBrokerCount",
        "Brokers that are registered and not fenced.",
        lambda image: sum(not broker.fenced for broker in image.brokers.values()),
    ),
    _of_image(
        "FencedBrokerCount",
        "Brokers that are registered and fenced.",
        lambda image: sum(broker.fenced for broker in image.brokers.values()),
    ),
    _raft("current-leader", "The id of the quorum's leader; -1: unknown.", _leader),
    _raft(
        "current-epoch",
        "The epoch of the quorum.",
        lambda scrape: None if scrape.quorum is None else scrape.quorum.leader_epoch,
    ),
    _raft(
        "high-watermark",
        "The end of the committed metadata log, as this node knows it.",
        lambda scrape: scrape.node.quorum.high_watermark,
    ),
    _raft(
        "log-end-offset",
        "The end of this node's metadata log.",
        lambda scrape: scrape.node.quorum.log_end_offset,
    ),
    gauge(
        "kafka_controller_kafkacontroller_ignoredstaticvoters",
        "1 if controller.quorum.voters has no effect any more, since the voters are in the log.",
        lambda scrape: None if scrape.quorum is None else scrape.node.quorum.ignores_fixed_voters,
        _CONTROLLER + "IgnoredStaticVoters",
    ),
    _raft("number-of-voters", "Voters.", lambda scrape: len(scrape.node.quorum.voters)),
    _raft(
        "number-of-observers",
        "Observers. Only on the leader.",
        lambda scrape: (
            len(scrape.quorum.observers)
            if scrape.quorum is not None and scrape.quorum.leader_id == scrape.node.config.node_id
            else None
        ),
    ),
    Metric(
        "pykraft_quorum_replica_lag",
        Kind.GAUGE,
        "Records of the metadata log that a voter or observer lacks. Only on the leader.",
        _replica_lags,
        ("replica", "kind"),
    ),
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 starting, 2 recovering, 3 running, 6 handing over, 7 stopping.",
        lambda scrape: None if scrape.broker is None else _STATE_NUMBERS[scrape.broker.lifecycle.state],
        "kafka.server:type=KafkaServer,name=BrokerState",
    ),
    gauge(
        "pykraft_broker_fenced",
        "1 while this broker knows that it is fenced.",
        lambda scrape: None if scrape.broker is None else scrape.broker.lifecycle.is_fenced,
    ),
    gauge(
        "pykraft_broker_lease_seconds",
        "How long this broker may still answer by itself, without another heartbeat.",
        lambda scrape: (
            None if scrape.broker is None else scrape.broker.lifecycle.lease_left_ms(scrape.now_ms) / 1000
        ),
    ),
    gauge(
        "pykraft_broker_refused_config_values",
        "Configuration values in the metadata that another version accepted and this broker ignores.",
        lambda scrape: None if scrape.broker is None else scrape.broker.refused_values.count,
    ),
    gauge(
        "kafka_server_brokermetadatametrics_last_applied_record_offset",
        "The last record of the metadata log that this broker has applied.",
        lambda scrape: None if scrape.broker is None else scrape.broker.applied_offset(),
        "kafka.server:type=broker-metadata-metrics,attribute=last-applied-record-offset",
    ),
)
