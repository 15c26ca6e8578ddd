"""ListOffsets: the start and end offsets of partitions, and the offset for a timestamp.

Partitions are grouped by leader; those whose leader moved or failed are looked up again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.leader_requests import ask_leaders
from pykraft.kafka_client.metadata import Partition, TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.records import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pykraft.lazy_dataclass import dataclass

__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "ListedOffset",
    "TopicPartition",
    "list_each_offset",
    "list_offsets",
]

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The answer for one partition. ``offset`` None: no record is as new as the requested timestamp."""

    offset: int | None
    timestamp_ms: int | None
    leader_epoch: int | None


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    deadline_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset]:
    """The offset for each partition's timestamp (milliseconds, or one of the constants above).

    All or nothing: raises the first error that is final or lasts until the deadline.
    """
    found: dict[TopicPartition, ListedOffset] = {}
    to_refresh = {topic for topic, _ in timestamps if cluster.metadata.topic(topic) is None}

    async def attempt() -> None:
        if to_refresh:
            await cluster.refresh(sorted(to_refresh), deadline_ms)
            to_refresh.clear()
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for topic, index in sorted(timestamps.keys() - found.keys()):
            partition = await cluster.leader(topic, index, deadline_ms)
            assert partition.leader_id is not None
            by_leader[partition.leader_id].append(partition)
        failure: KafkaError | None = None
        for leader_id, partitions in sorted(by_leader.items()):
            try:
                request = _request(partitions, timestamps, isolation_level)
                response = await cluster.ask_broker(leader_id, request, deadline_ms)
                _collect(response, found)
            except KafkaError as error:
                if not is_passing(error):
                    raise
                failure = error
                to_refresh.update(partition.topic for partition in partitions)
        if failure is not None:
            raise failure
        if left_out := sorted(timestamps.keys() - found.keys()):
            reason = f"ListOffsets: the answer leaves out {left_out[0]}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    await cluster.retrying("ListOffsets", attempt, deadline_ms)
    return found


async def list_each_offset(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    deadline_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """As :func:`list_offsets`, with an error in place of the offset for the partitions that fail."""

    async def ask(
        leader_id: int, partitions: list[Partition]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        request = _request(partitions, timestamps, isolation_level)
        response = await cluster.ask_broker(leader_id, request, deadline_ms)
        return _results(response)

    return await ask_leaders(cluster, "ListOffsets", timestamps, ask, deadline_ms)


def _request(
    partitions: list[Partition], timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(
            ListOffsetsPartition(
                partition_index=partition.index,
                current_leader_epoch=-1 if partition.leader_epoch is None else partition.leader_epoch,
                timestamp=timestamps[TopicPartition(partition.topic, partition.index)],
            )
        )
    topics = [ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in sorted(by_topic.items())]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def _collect(response: ListOffsetsResponse, found: dict[TopicPartition, ListedOffset]) -> None:
    """Keep every successful answer; then raise the worst error, a final one before a retriable one."""
    errors = []
    for key, result in _results(response).items():
        if isinstance(result, KafkaError):
            errors.append(result)
        else:
            found[key] = result
    if errors:
        raise min(errors, key=is_passing)


def _results(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | KafkaError]:
    return {
        TopicPartition(topic.name, partition.partition_index): KafkaError(
            ErrorCode(partition.error_code), f"ListOffsets for {topic.name}-{partition.partition_index}"
        )
        if partition.error_code != ErrorCode.NONE
        else ListedOffset(
            offset=partition.offset if partition.offset >= 0 else None,
            timestamp_ms=partition.timestamp if partition.timestamp >= 0 else None,
            leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
        )
        for topic in response.topics
        for partition in topic.partitions
    }
