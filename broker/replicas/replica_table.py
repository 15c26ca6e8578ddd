"""The table of the replicas that are open on this broker and have a role. It decides nothing about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.traffic import TrafficTable
from pykraft.kafka_protocol.ids import Uuid

K = TypeVar("K")


class ReplicaTable:
    """The replicas by topic name and by topic id. ``by_name`` and ``by_id`` are read-only for others."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[Uuid, dict[int, Partition]] = {}
        self.traffic = TrafficTable()

    def __iter__(self) -> Iterator[Partition]:
        """Iterate in order of topic name and index; the table may change meanwhile."""
        for topic in sorted(self.by_name):
            partitions = self.by_name.get(topic, {})
            for index in sorted(partitions):
                if index in partitions:
                    yield partitions[index]

    def __contains__(self, key: TopicPartition) -> bool:
        topic, index = key
        return index in self.by_name.get(topic, ())

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def look_up(self, topic: str | Uuid, index: int) -> Partition | None:
        """As :meth:`find`, by the topic's name or id."""
        partitions = self.by_name.get(topic) if isinstance(topic, str) else self.by_id.get(topic)
        return None if partitions is None else partitions.get(index)

    def last_stable_offset(self, opened: OpenLog) -> int | None:
        """That of the replica with this log; None if there is none."""
        partition = self.find(*opened.topic_partition)
        return None if partition is None or partition.log is not opened.log else partition.last_stable_offset

    def add(self, partition: Partition) -> None:
        self.by_name.setdefault(partition.topic, {})[partition.index] = partition
        self.by_id.setdefault(partition.topic_id, {})[partition.index] = partition

    def remove_topic(self, topic_id: Uuid) -> dict[int, Partition]:
        """Remove and return the replicas of a topic, by their indexes."""
        removed = dict(self.by_id.get(topic_id, {}))
        for partition in removed.values():
            self.remove(partition)
        return removed

    def remove(self, partition: Partition) -> None:
        _remove(self.by_name, partition.topic, partition.index)
        _remove(self.by_id, partition.topic_id, partition.index)
        if partition.topic not in self.by_name:
            self.traffic.forget(partition.topic)


def _remove(table: dict[K, dict[int, Partition]], topic: K, index: int) -> None:
    del table[topic][index]
    if not table[topic]:
        del table[topic]
