"""Producers as partitions know them (KIP-664), and markers that end transactions their coordinators forgot.

Errors carry the messages of Kafka's admin client, which its tools print.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.leader_requests import ask_leaders
from pykraft.kafka_client.metadata import Partition, TopicPartition
from pykraft.kafka_client.results import AbortTransactionSpec, ProducerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import transactions as wire
from pykraft.kafka_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

Producers = tuple[ProducerState, ...]
Found = dict[TopicPartition, Producers | KafkaError]

_BY_RULES_OF_VERSION_0: Final = 0
"""By those of version 2 a marker has the epoch after the one that it ends."""


class ProducerOperations(Operations):
    async def describe_producers(
        self,
        partitions: Collection[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
        """The producers of each partition, or its error, as its leader or the replica on one broker says."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        if broker_id is not None:
            return await _describe_at(cluster, broker_id, partitions, deadline_ms)

        async def ask(leader_id: int, led: list[Partition]) -> Found:
            return await _ask(
                cluster, leader_id, [TopicPartition(it.topic, it.index) for it in led], deadline_ms
            )

        return await ask_leaders(cluster, "DescribeProducers", partitions, ask, deadline_ms)

    async def abort_transaction(self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None) -> None:
        """Abort a hanging transaction in one partition. Its coordinator is not told: a transaction that it
        knows is to be ended there, by :meth:`force_terminate_transaction`.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=spec.producer_id,
                    producer_epoch=spec.producer_epoch,
                    transaction_result=False,
                    topics=[
                        WritableTxnMarkerTopic(
                            name=spec.partition.topic, partition_indexes=[spec.partition.partition]
                        )
                    ],
                    coordinator_epoch=spec.coordinator_epoch,
                    transaction_version=_BY_RULES_OF_VERSION_0,
                )
            ]
        )

        async def ask(leader_id: int, led: list[Partition]) -> dict[TopicPartition, KafkaError | None]:
            response = await cluster.ask_broker(leader_id, request, deadline_ms)
            answers = [
                (marker.producer_id, topic.name, it.partition_index, it.error_code)
                for marker in response.markers
                for topic in marker.topics
                for it in topic.partitions
            ]
            if len(answers) != 1 or answers[0][:3] != (spec.producer_id, *spec.partition):
                reason = f"WriteTxnMarkers response included unexpected entries: {answers}"
                return {spec.partition: KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)}
            return {spec.partition: _marker_error(spec, answers[0][3])}

        outcome = await ask_leaders(cluster, "WriteTxnMarkers", [spec.partition], ask, deadline_ms)
        error = outcome[spec.partition]
        if error is not None:
            raise error


async def _describe_at(
    cluster: Cluster, broker_id: int, partitions: Collection[TopicPartition], deadline_ms: int
) -> Found:
    """That the broker has no replica is final here: no other broker was asked for."""
    found: Found = {}
    pending = set(partitions)

    async def attempt() -> None:
        await cluster.refresh([], deadline_ms)
        try:
            answered = await _ask(cluster, broker_id, sorted(pending), deadline_ms)
        except KafkaError as error:
            answered = dict.fromkeys(sorted(pending), error)
        for key, result in answered.items():
            if isinstance(result, KafkaError) and result.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                reason = f"Failed to describe active producers for partition {key} on brokerId {broker_id}"
                result = KafkaError(result.code, reason)
            elif isinstance(result, KafkaError) and is_passing(result):
                found[key] = result
                continue
            found[key] = result
            pending.discard(key)
        if pending:
            reason_to_repeat = found[min(pending)]
            assert isinstance(reason_to_repeat, KafkaError)
            raise reason_to_repeat

    try:
        await cluster.retrying("DescribeProducers", attempt, deadline_ms)
    except KafkaError as error:
        found.update(dict.fromkeys(pending, error))
    return found


async def _ask(
    cluster: Cluster, broker_id: int, partitions: Collection[TopicPartition], deadline_ms: int
) -> Found:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    request = wire.DescribeProducersRequest(
        topics=[wire.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    )
    response = await cluster.ask_broker(broker_id, request, deadline_ms)
    found: Found = {
        (key := TopicPartition(topic.name, it.partition_index)): _producers(key, it)
        for topic in response.topics
        for it in topic.partitions
    }
    missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves the partition out")
    return {key: found.get(key, missing) for key in partitions}


def _producers(partition: TopicPartition, found: wire.PartitionResponse) -> Producers | KafkaError:
    if found.error_code:
        return _refusal(partition, ErrorCode(found.error_code), found.error_message)
    return tuple(
        ProducerState(
            producer_id=it.producer_id,
            producer_epoch=it.producer_epoch,
            last_sequence=it.last_sequence,
            last_timestamp_ms=it.last_timestamp,
            coordinator_epoch=it.coordinator_epoch if it.coordinator_epoch >= 0 else None,
            transaction_start_offset=it.current_txn_start_offset
            if it.current_txn_start_offset >= 0
            else None,
        )
        for it in found.active_producers
    )


def _refusal(partition: TopicPartition, code: ErrorCode, said: str | None) -> KafkaError:
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        text = f"Failed to fetch metadata for partition {partition} due to invalid topic error: {said}"
    elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = (
            f"Failed to describe active producers for partition {partition} due to authorization failure on "
            f"topic `{partition.topic}`"
        )
    elif code.retriable and said:
        text = said
    else:
        text = f"Failed to describe active producers for partition {partition} due to unexpected error"
    return KafkaError(code, text)


def _marker_error(spec: AbortTransactionSpec, number: int) -> KafkaError | None:
    if not number:
        return None
    code = ErrorCode(number)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        reason = "failed due to cluster authorization error"
    elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
        reason = "failed due an invalid producer epoch"
    elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        reason = (
            f"failed since the provided coordinator epoch {spec.coordinator_epoch} has been fenced by the "
            "active coordinator"
        )
    else:
        reason = f"failed due to unexpected error: {code.name}"
    return KafkaError(code, f"WriteTxnMarkers request with {spec} {reason}")
