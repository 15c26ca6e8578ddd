"""A workload as it runs on a cluster that somebody else runs, which has timeouts and protocols of its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.runs.foreign import ForeignCluster
from pykraft.jepsen_like.faults.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.faults.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.faults.workloads.registry import REAL_GROUPS, WORKLOADS
from pykraft.jepsen_like.faults.workloads.workload import Workload
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError

NOT_CHECKED: Final = (
    "leaderships, replicas in sync, the replicas' own logs, nodes that end by themselves:"
    " only who runs the nodes can see them"
)
GROUP_VERSION: Final = "group.version"
SESSION_TIMEOUT: Final = "group.consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "group.consumer.heartbeat.interval.ms"
_DEFAULTS: Final = {SESSION_TIMEOUT: "45000", HEARTBEAT_INTERVAL: "5000"}
_CONNECT_TIMEOUT_MS: Final = 5_000

Say = Callable[[str], None]


def foreign_workload(
    cluster: ForeignCluster, clients: OwnClients, name: str, seed: int, history: Recorder, say: Say
) -> Workload:
    """The workload ``name`` for a connected cluster; call this on its event loop.

    ``say`` is told what of the workload is left out there.
    """
    clients.prefix, clients.most_replicas = cluster.prefix, len(cluster.brokers)
    if name == "groups":
        return GroupsWorkload(clients, _groups_config(cluster, say), seed, history)
    return WORKLOADS[name](clients, seed, history)


def _groups_config(cluster: ForeignCluster, say: Say) -> GroupsConfig:
    """With the timeouts of the cluster's consumer groups, or Kafka's where it does not tell."""
    told, config = {**_DEFAULTS, **cluster.broker_configs()}, REAL_GROUPS
    if not _has_consumer_protocol(cluster.bootstrap_servers):
        say("NOT CHECKED: groups of the consumer protocol (KIP-848), which the cluster does not have")
        config = replace(
            config,
            groups=tuple(one for one in config.groups if one.protocol == "classic"),
            static_groups=tuple(one for one in config.static_groups if one.protocol == "classic"),
        )
    return replace(
        config,
        session_timeout_ms=int(told[SESSION_TIMEOUT]),
        heartbeat_interval_ms=int(told[HEARTBEAT_INTERVAL]),
    )


def _has_consumer_protocol(bootstrap_servers: str) -> bool:
    network = BlockingNetwork()
    for address in parse_bootstrap_servers(bootstrap_servers):
        deadline_ms = network.now_ms() + _CONNECT_TIMEOUT_MS
        try:
            connection = run(Connection.open(network, address, "jepsen", deadline_ms))
        except (KafkaError, OSError):
            continue
        connection.close()
        has_version = connection.finalized_features.get(GROUP_VERSION, 0) > 0
        return has_version and connection.serves(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    return False
