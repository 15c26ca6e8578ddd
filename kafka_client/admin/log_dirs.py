"""Admin operations on the log directories of brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import LogDirDescription, LogDirReplica
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


async def describe_log_dirs(
    cluster: Cluster,
    broker_ids: Collection[int],
    deadline_ms: int,
    partitions: Collection[TopicPartition] | None = None,
) -> dict[int, list[LogDirDescription]]:
    """The log directories of these brokers, with these replicas (None: all). Fails if one cannot be asked."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        by_topic.setdefault(topic, []).append(index)
    wanted = [DescribableLogDirTopic(topic=topic, partitions=found) for topic, found in by_topic.items()]
    request = DescribeLogDirsRequest(topics=None if partitions is None else wanted)

    async def attempt() -> dict[int, list[LogDirDescription]]:
        await cluster.refresh([], deadline_ms)
        found = {}
        for broker_id in broker_ids:
            response = await cluster.ask_broker(broker_id, request, deadline_ms)
            check(response.error_code, None, f"DescribeLogDirs of broker {broker_id}")
            found[broker_id] = [_describe(result) for result in response.results]
        return found

    return await cluster.retrying("DescribeLogDirs", attempt, deadline_ms)


def _describe(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        result.log_dir,
        ErrorCode(result.error_code),
        tuple(
            LogDirReplica(
                TopicPartition(topic.name, replica.partition_index),
                replica.partition_size,
                replica.offset_lag,
                replica.is_future_key,
            )
            for topic in result.topics
            for replica in topic.partitions
        ),
        result.total_bytes,
        result.usable_bytes,
    )


class LogDirOperations(Operations):
    async def describe_log_dirs(
        self, broker_ids: Collection[int], *, timeout_ms: int | None = None
    ) -> dict[int, list[LogDirDescription]]:
        by = self.cluster.deadline(timeout_ms)
        return await describe_log_dirs(self.cluster, broker_ids, by)

    async def alter_replica_log_dirs(
        self, broker_id: int, wanted: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """Move replicas of one broker to other directories of it. NONE: the move has begun."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        by_dir: dict[str, dict[str, list[int]]] = {}
        for partition, path in wanted.items():
            by_dir.setdefault(path, {}).setdefault(partition.topic, []).append(partition.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=path, topics=_topics(topics)) for path, topics in by_dir.items()]
        )

        async def attempt() -> dict[TopicPartition, ErrorCode]:
            await cluster.refresh([], deadline_ms)
            response = await cluster.ask_broker(broker_id, request, deadline_ms)
            return {
                TopicPartition(result.topic_name, partition.partition_index): ErrorCode(partition.error_code)
                for result in response.results
                for partition in result.partitions
            }

        return await cluster.retrying("AlterReplicaLogDirs", attempt, deadline_ms)


def _topics(topics: Mapping[str, Sequence[int]]) -> list[AlterReplicaLogDirTopic]:
    return [AlterReplicaLogDirTopic(name=name, partitions=list(found)) for name, found in topics.items()]
