"""Workloads' administration and single requests on a cluster that others use, too: ``prefixed_clients``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykraft.jepsen_like.faults.clients.interface import Admin, Commit, Requests
from pykraft.jepsen_like.faults.clients.names import Names
from pykraft.kafka_client.metadata import TopicPartition


@dataclass(frozen=True, slots=True)
class PrefixedAdmin:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Admin` of topics and groups of one's own."""

    admin: Admin
    names: Names
    most_replicas: int

    @property
    def repeats(self) -> int:
        return self.admin.repeats

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        replicas = min(replication_factor, self.most_replicas)
        await self.admin.create_topic(self.names.new_topic(topic), partitions, replicas, configs)

    async def delete_topic(self, topic: str) -> None:
        await self.admin.delete_topic(self.names.topic(topic))

    async def create_partitions(self, topic: str, total: int) -> None:
        await self.admin.create_partitions(self.names.topic(topic), total)

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        await self.admin.alter_config(self.names.topic(topic), name, value)

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        await self.admin.reassign(self.names.there(partition), replicas)

    async def elect_preferred(self, partition: TopicPartition) -> None:
        await self.admin.elect_preferred(self.names.there(partition))

    async def brokers(self) -> Sequence[int]:
        return await self.admin.brokers()

    async def partition_count(self, topic: str) -> int | None:
        return await self.admin.partition_count(self.names.topic(topic))

    async def config(self, topic: str, name: str) -> str | None:
        return await self.admin.config(self.names.topic(topic), name)

    async def replicas(self, partition: TopicPartition) -> Sequence[int]:
        return await self.admin.replicas(self.names.there(partition))

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return await self.admin.offset_for_time(self.names.there(partition), timestamp_ms)

    async def delete_records(self, partition: TopicPartition, offset: int) -> int:
        return await self.admin.delete_records(self.names.there(partition), offset)

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        places = list(map(self.names.there, partitions))
        return self.names.all_here(await self.admin.committed(self.names.prefix + group, places))

    async def close(self) -> None:
        await self.admin.close()


@dataclass(frozen=True, slots=True)
class PrefixedRequests:
    """:class:`.interface.Requests` about topics and groups of one's own."""

    requests: Requests
    names: Names

    async def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        await self.requests.commit(self.names.new_group(group), self.names.there(partition), commit)

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        return await self.requests.committed(self.names.prefix + group, self.names.there(partition))

    async def brokers(self) -> Sequence[int]:
        return await self.requests.brokers()

    async def set_config(self, broker: int, topic: str, name: str, value: str) -> None:
        await self.requests.set_config(broker, self.names.topic(topic), name, value)

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        return await self.requests.config(broker, self.names.topic(topic), name)

    async def producer_id(self, broker: int) -> int:
        return await self.requests.producer_id(broker)

    async def close(self) -> None:
        await self.requests.close()
