"""The client's picture of the cluster: brokers, topics by id, leaders by epoch.

Leaders are kept per topic *id*, so a topic that was deleted and created again under its old name never
inherits the old one's epochs; of two answers about one partition the one with the higher leader epoch wins,
because brokers learn of changes at different times (KIP-320, KIP-516). Pure: it sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.cluster import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as clients reach it."""

    id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as last reported. ``leader_id`` None: no leader; ``leader_epoch`` None: not reported."""

    topic: str
    topic_id: Uuid
    index: int
    leader_id: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as last reported; ``topic_id`` is all zeros if the broker predates topic ids."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: dict[int, Partition]


class MetadataCache:
    """Merges Metadata answers (and leader hints) into one view."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.brokers: dict[int, Broker] = {}
        self.errors: dict[str, ErrorCode] = {}
        self._topics: dict[str, Topic] = {}

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self) -> Iterable[Topic]:
        return self._topics.values()

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self._topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def replay(self, response: MetadataResponse, *, complete: bool = False) -> None:
        """Merge an answer. Topics that it reports with an error are dropped and noted in ``errors``.

        Topics that a ``complete`` answer (one about all topics) leaves out are dropped without an error.
        """
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        if response.brokers:
            self.brokers = {
                broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            }
        if complete:
            listed = {topic.name for topic in response.topics}
            self._topics = {name: topic for name, topic in self._topics.items() if name in listed}
        for topic in response.topics:
            if topic.name is None:
                continue
            code = ErrorCode(topic.error_code)
            if code is ErrorCode.NONE:
                self.errors.pop(topic.name, None)
                self._topics[topic.name] = self._merge(topic.name, topic)
            else:
                self.errors[topic.name] = code
                self._topics.pop(topic.name, None)

    def replay_leader(
        self, topic: str, index: int, leader_id: int, leader_epoch: int, brokers: Iterable[Broker] = ()
    ) -> bool:
        """Merge a leader hint that came with an error (KIP-951); False if it is not newer."""
        for broker in brokers:
            self.brokers[broker.id] = broker
        known = self.partition(topic, index)
        if known is None or leader_id < 0 or leader_id not in self.brokers:
            return False
        if known.leader_epoch is not None and leader_epoch <= known.leader_epoch:
            return False
        self._topics[topic].partitions[index] = replace(
            known, leader_id=leader_id, leader_epoch=leader_epoch, error=ErrorCode.NONE
        )
        return True

    def _merge(self, name: str, topic: MetadataResponseTopic) -> Topic:
        known = self._topics.get(name)
        same = known is not None and known.topic_id == topic.topic_id
        partitions = {}
        for listed in topic.partitions:
            fresh = _partition(name, Uuid(topic.topic_id), listed)
            old = known.partitions.get(fresh.index) if same and known is not None else None
            partitions[fresh.index] = fresh if old is None or not _is_newer(old, fresh) else old
        return Topic(name, Uuid(topic.topic_id), topic.is_internal, partitions)


def has_id(topic_id: Uuid) -> bool:
    return topic_id != ZERO_UUID


def _is_newer(one: Partition, other: Partition) -> bool:
    return one.leader_epoch is not None and (
        other.leader_epoch is None or one.leader_epoch > other.leader_epoch
    )


def _partition(name: str, topic_id: Uuid, listed: MetadataResponsePartition) -> Partition:
    return Partition(
        topic=name,
        topic_id=topic_id,
        index=listed.partition_index,
        leader_id=listed.leader_id if listed.leader_id >= 0 else None,
        leader_epoch=listed.leader_epoch if listed.leader_epoch >= 0 else None,
        replicas=tuple(listed.replica_nodes),
        isr=tuple(listed.isr_nodes),
        offline_replicas=tuple(listed.offline_replicas),
        error=ErrorCode(listed.error_code),
    )
