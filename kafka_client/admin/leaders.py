"""Electing leaders and moving replicas. One partition's error never hides another's result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import PartitionOutcome, PartitionReassignment
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)


class ReplicaOperations(Operations):
    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[PartitionOutcome]:
        """``partitions`` None: every partition that needs an election; the outcomes then name only those."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        asked = None
        if partitions is not None:
            asked = [
                TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in _by_topic(partitions)
            ]

        async def attempt() -> list[PartitionOutcome]:
            request = ElectLeadersRequest(election_type=int(election_type), topic_partitions=asked)
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, None, "ElectLeaders")
            return [
                _outcome(topic.topic, result.partition_id, result.error_code, result.error_message)
                for topic in response.replica_election_results
                for result in topic.partition_result
            ]

        return await cluster.retrying("ElectLeaders", attempt, deadline_ms)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> list[PartitionOutcome]:
        """Move partitions to these replicas; None cancels a reassignment. If the replication factor may not
        change, partitions of which it would are refused with INVALID_REPLICATION_FACTOR.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=None if wanted is None else list(wanted)
                    )
                    for index in indexes
                    for wanted in [replicas[TopicPartition(topic, index)]]
                ],
            )
            for topic, indexes in _by_topic(replicas)
        ]

        async def attempt() -> list[PartitionOutcome]:
            request = AlterPartitionReassignmentsRequest(
                topics=topics, allow_replication_factor_change=allow_replication_factor_change
            )
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, response.error_message, "AlterPartitionReassignments")
            return [
                _outcome(topic.name, result.partition_index, result.error_code, result.error_message)
                for topic in response.responses
                for result in topic.partitions
            ]

        return await cluster.retrying("AlterPartitionReassignments", attempt, deadline_ms)

    async def list_partition_reassignments(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """All reassignments in progress."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(topics=None)
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, response.error_message, "ListPartitionReassignments")
            return {
                TopicPartition(topic.name, found.partition_index): PartitionReassignment(
                    tuple(found.replicas), tuple(found.adding_replicas), tuple(found.removing_replicas)
                )
                for topic in response.topics
                for found in topic.partitions
            }

        return await cluster.retrying("ListPartitionReassignments", attempt, deadline_ms)


def _by_topic(partitions: Collection[TopicPartition]) -> list[tuple[str, list[int]]]:
    grouped = groupby(sorted(partitions), lambda it: it.topic)
    return [(topic, [it.partition for it in group]) for topic, group in grouped]


def _outcome(topic: str, index: int, error_code: int, message: str | None) -> PartitionOutcome:
    partition = TopicPartition(topic, index)
    if error_code == ErrorCode.NONE:
        return PartitionOutcome(partition)
    return PartitionOutcome(partition, KafkaError(ErrorCode(error_code), message or ""))
