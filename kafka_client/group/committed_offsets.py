"""The committed offsets of a group, for a member of it, or for anyone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinators import (
    ask_coordinator,
    ask_for_coordinator,
)
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import CommittedOffset
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_LAST_OFFSET_FETCH_BY_NAME = 9


async def group_offsets(
    cluster: Cluster,
    group_id: str,
    deadline_ms: int,
    partitions: Sequence[TopicPartition] | None = None,
    member: GroupIdentity | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group (None: all); partitions without one are left out. ``require_stable``:
    wait for transactions that may change them.

    With ``member`` the request names it, and fails with STALE_MEMBER_EPOCH if the group is past its epoch.
    """

    async def attempt() -> dict[TopicPartition, CommittedOffset]:
        coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
        request = _offset_fetch_request(group_id, partitions, member, require_stable)
        response = await ask_coordinator(
            cluster,
            coordinator,
            request,
            deadline_ms,
            max_version=_LAST_OFFSET_FETCH_BY_NAME,
        )
        found: dict[TopicPartition, CommittedOffset] = {}
        check(response.error_code, None, f"OffsetFetch of {group_id}")
        topics: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = [*response.topics]
        for group in response.groups:
            check(group.error_code, None, f"OffsetFetch of {group_id}")
            topics += group.topics
        for topic in topics:
            for partition in topic.partitions:
                check(partition.error_code, None, f"OffsetFetch of {group_id}")
                if partition.committed_offset >= 0:
                    epoch = partition.committed_leader_epoch
                    found[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                        partition.committed_offset, epoch if epoch >= 0 else None, partition.metadata or ""
                    )
        return found

    return await cluster.retrying(f"OffsetFetch of {group_id}", attempt, deadline_ms)


def _offset_fetch_request(
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    member: GroupIdentity | None,
    require_stable: bool,
) -> OffsetFetchRequest:
    """Both forms of the request; the version that is sent decides which is used."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions or ():
        by_topic[topic].append(index)
    items = sorted(by_topic.items())
    alone = (
        None
        if partitions is None
        else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in items]
    )
    grouped = (
        None
        if partitions is None
        else [OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in items]
    )
    group = OffsetFetchRequestGroup(group_id=group_id, topics=grouped)
    if member is not None:
        group.member_id, group.member_epoch = member.member_id, member.member_epoch
    return OffsetFetchRequest(group_id=group_id, topics=alone, groups=[group], require_stable=require_stable)
