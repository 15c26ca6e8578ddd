"""Groups of both protocols: list, delete, committed offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from pykraft.kafka_client.admin.cluster import check
from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.admin.topics import error_of
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinators import (
    ask_coordinator,
    ask_coordinators,
    ask_for_coordinator,
    find_coordinator,
)
from pykraft.kafka_client.errors import UnsupportedByBrokerError
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import BrokerDescription, CommittedOffset, GroupListing, Outcome
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest, ListGroupsResponse
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_LAST_OFFSET_FETCH_BY_NAME = 9
_STATES_VERSION = 4
_TYPES_VERSION = 5


class GroupOperations(Operations):
    async def find_coordinator(self, group_id: str, *, timeout_ms: int | None = None) -> BrokerDescription:
        return await find_coordinator(self.cluster, group_id, self.cluster.deadline(timeout_ms))

    async def list_groups(
        self,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        protocol_types: Collection[str] = (),
        *,
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """The groups of every broker that match all filters; an empty filter matches all groups.

        Fails if one broker cannot be asked, or cannot filter: a list of some groups, or of too many, would
        mislead.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        needed = _TYPES_VERSION if types else _STATES_VERSION if states else 0

        async def attempt() -> list[GroupListing]:
            await cluster.refresh([], deadline_ms)
            found: dict[str, GroupListing] = {}
            for broker_id in sorted(cluster.metadata.brokers):
                connection = await cluster.broker(broker_id, deadline_ms)
                if connection.version_for(request) < needed:
                    raise UnsupportedByBrokerError(f"broker {broker_id} cannot list groups by state or type")
                response = await cluster.ask_broker(broker_id, request, deadline_ms)
                found |= {group.group_id: group for group in _listed(response, broker_id)}
            kept = (it for it in found.values() if not protocol_types or it.protocol_type in protocol_types)
            return sorted(kept, key=lambda it: it.group_id)

        return await cluster.retrying("ListGroups", attempt, deadline_ms)

    async def delete_groups(
        self, group_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> list[Outcome]:
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def delete(
            coordinator: BrokerDescription, group_ids: Sequence[str]
        ) -> dict[str, Outcome | KafkaError]:
            request = DeleteGroupsRequest(groups_names=list(group_ids))
            response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            return {
                result.group_id: error_of(result.error_code, None, result.group_id)
                or Outcome(result.group_id)
                for result in response.results
            }

        deleted = await ask_coordinators(cluster, "DeleteGroups", group_ids, delete, deadline_ms)
        return [
            Outcome(group_id, result) if isinstance(result, KafkaError) else result
            for group_id, result in deleted.items()
        ]

    async def group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of these partitions (None: of all that have one)."""
        by = self.cluster.deadline(timeout_ms)
        return await group_offsets(self.cluster, group_id, by, partitions)


async def list_groups_of_broker(cluster: Cluster, broker_id: int, deadline_ms: int) -> list[GroupListing]:
    """The groups that one broker coordinates, by id, in one attempt; it is in the cluster's metadata."""
    response = await cluster.ask_broker(broker_id, ListGroupsRequest(), deadline_ms)
    return sorted(_listed(response, broker_id), key=lambda it: it.group_id)


def _listed(response: ListGroupsResponse, broker_id: int) -> Iterator[GroupListing]:
    check(response.error_code, None, f"ListGroups of broker {broker_id}")
    for group in response.groups:
        yield GroupListing(
            group.group_id, group.protocol_type, group.group_state, group.group_type, broker_id
        )


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
