"""Changing the committed offsets of a group as an administrator, who is no member of it.

Offsets can be set while a group has no members, and deleted where no member reads the topic. A request that
was sent and never answered is sent again, as Kafka's client does: it may be carried out twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.coordinators import ask_coordinator, ask_for_coordinator
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
)

_LAST_COMMIT_BY_NAME = 9

Altered = dict[TopicPartition, KafkaError | None]
"""The error of each partition; None: done."""


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int
) -> Altered:
    """Set committed offsets; UNKNOWN_MEMBER_ID for each if the group has members."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in sorted(offsets.items()):
        by_topic[topic].append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=given) for name, given in by_topic.items()],
    )
    what = f"OffsetCommit of {group_id}"

    async def attempt() -> Altered:
        coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
        response = await ask_coordinator(
            cluster,
            coordinator,
            request,
            deadline_ms,
            max_version=_LAST_COMMIT_BY_NAME,
        )
        return _whole({topic.name: topic.partitions for topic in response.topics}, offsets, what)

    return await cluster.retrying(what, attempt, deadline_ms) if offsets else {}


class OffsetOperations(Operations):
    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set committed offsets of a group without members; returns the error of each partition."""
        by = self.cluster.deadline(timeout_ms)
        return await alter_group_offsets(self.cluster, group_id, offsets, by)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets; GROUP_SUBSCRIBED_TO_TOPIC for a partition that a member reads.

        Raises the error of the group as a whole, such as GROUP_ID_NOT_FOUND.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
        for topic, index in sorted(partitions):
            by_topic[topic].append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=given) for name, given in by_topic.items()
            ],
        )
        what = f"OffsetDelete of {group_id}"

        async def attempt() -> Altered:
            coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
            response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            check(response.error_code, None, what)
            return _whole({topic.name: topic.partitions for topic in response.topics}, partitions, what)

        return await cluster.retrying(what, attempt, deadline_ms)


def _whole(
    answered: Mapping[str, list[OffsetCommitResponsePartition] | list[OffsetDeleteResponsePartition]],
    asked: Collection[TopicPartition],
    what: str,
) -> Altered:
    """The outcome of every partition that was asked for.

    Raises an error that passes, and of the group: a commit carries them in each of its partitions.
    """
    outcomes: Altered = {}
    for topic, partitions in answered.items():
        for it in partitions:
            key, code = TopicPartition(topic, it.partition_index), ErrorCode(it.error_code)
            error = KafkaError(code, f"{what}, {key}: {code.name}") if code else None
            if error is not None and _is_for_later(error):
                raise error
            outcomes[key] = error
    missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves the partition out")
    return {key: outcomes.get(key, missing) for key in sorted(asked)}


def _is_for_later(error: KafkaError) -> bool:
    # Brokers know every topic there is: one that is unknown here is a mistake of the caller.
    return is_passing(error) and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
