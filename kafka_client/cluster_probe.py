"""Asking one particular broker what it knows: topics, leaders, in-sync replicas, the active controller.

An ordinary client picks a broker by itself and waits on one that is paused; tests, the nemesis and the
observer must choose. Every answer carries epochs, so that a broker that lags cannot make the view go back. A
probe is for one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    MetadataRequest,
    MetadataRequestTopic,
)
from pykraft.runtime.address import Address

R = TypeVar("R", bound=Message)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
NO_LEADER = -1
PROBE_TIMEOUT_MS = 800


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as one broker sees it; ``leader`` is -1 where there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """``brokers`` are the ids listed as alive; ``partitions`` is empty while the topic is unknown."""

    brokers: frozenset[int]
    partitions: Mapping[int, PartitionView]

    @property
    def is_led(self) -> bool:
        """Whether the topic is known, and every partition has a leader."""
        return bool(self.partitions) and all(v.leader != NO_LEADER for v in self.partitions.values())

    @property
    def fully_in_sync(self) -> bool:
        """Whether every partition has a leader and all of its replicas."""
        return self.is_led and all(set(v.isr) == set(v.replicas) for v in self.partitions.values())


@dataclass(frozen=True, slots=True, order=True)
class QuorumView:
    """The active controller in an epoch. Ordered by epoch."""

    epoch: int
    leader: int


class ClusterProbe:
    """Keeps one connection to each broker and opens it again after a failure."""

    def __init__(self, addresses: Mapping[int, Address], client_id: str = "probe") -> None:
        self._addresses = dict(addresses)
        self._client_id = client_id
        self._network = BlockingNetwork()
        self._connections: dict[int, Connection] = {}

    def topic(self, node_id: int, topic: str, timeout_ms: int = PROBE_TIMEOUT_MS) -> TopicView | None:
        """Return this broker's view of the topic; None if it does not answer in time."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = self._call(node_id, request, timeout_ms)
        if response is None:
            return None
        partitions = {
            p.partition_index: PartitionView(
                p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes)
            )
            for found in response.topics
            for p in found.partitions
        }
        return TopicView(frozenset(broker.node_id for broker in response.brokers), partitions)

    def quorum(self, node_id: int, timeout_ms: int = PROBE_TIMEOUT_MS) -> QuorumView | None:
        """The active controller as this broker can learn it; None if it cannot in time."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        response = self._call(node_id, request, timeout_ms)
        if response is None or response.error_code:
            return None
        for found in response.topics:
            for state in found.partitions:
                if not state.error_code and state.leader_id != NO_LEADER:
                    return QuorumView(state.leader_epoch, state.leader_id)
        return None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _call(self, node_id: int, request: Request[R], timeout_ms: int) -> R | None:
        deadline_ms = self._network.now_ms() + timeout_ms
        try:
            connection = self._connections.get(node_id)
            if connection is None or connection.closed:
                address = self._addresses[node_id]
                opened = Connection.open(self._network, address, self._client_id, deadline_ms)
                connection = self._connections[node_id] = run(opened)
            return run(connection.call(request, deadline_ms))
        except (KafkaError, OSError):
            dropped = self._connections.pop(node_id, None)
            if dropped is not None:
                dropped.close()
            return None
