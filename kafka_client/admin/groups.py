"""Groups of both protocols: list, delete, remove members, committed offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pykraft.kafka_client.admin.describe_groups import GroupDescriptions
from pykraft.kafka_client.admin.topics import error_of
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinators import (
    ask_coordinator,
    ask_coordinators,
    ask_for_coordinator,
    connection_to,
    find_coordinator,
)
from pykraft.kafka_client.errors import UnsupportedByBrokerError, check
from pykraft.kafka_client.group.committed_offsets import group_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    BrokerDescription,
    CommittedOffset,
    GroupListing,
    MemberToRemove,
    Outcome,
)
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.groups import (
    DeleteGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
)

_STATES_VERSION = 4
_TYPES_VERSION = 5
_SEVERAL_MEMBERS_VERSION = 3
_REASON = "member was removed by an admin"
_MAX_REASON_CHARS = 255


class GroupOperations(GroupDescriptions):
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

    async def remove_group_members(
        self,
        group_id: str,
        members: Sequence[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[Outcome]:
        """Remove these members (None: all that the group has now). An outcome is named by the member's
        instance id, or else its member id; UNKNOWN_MEMBER_ID for a member that is not there. Who is removed
        is told at its next request.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        if members is None:
            group = await self.describe_group(group_id, timeout_ms=timeout_ms)
            members = [
                MemberToRemove(instance_id=it.instance_id) if it.instance_id else MemberToRemove(it.member_id)
                for it in group.members
            ]
        if not members:
            return []
        text = (_REASON if reason is None else f"{_REASON}: {reason}")[:_MAX_REASON_CHARS]
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id=it.member_id, group_instance_id=it.instance_id, reason=text)
                for it in members
            ],
        )

        async def attempt() -> list[Outcome]:
            coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
            connection = await connection_to(cluster, coordinator, deadline_ms)
            if connection.version_for(request) < _SEVERAL_MEMBERS_VERSION:
                raise UnsupportedByBrokerError("the broker removes members only at their own request")
            response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            check(response.error_code, None, f"LeaveGroup of {group_id}")
            named = ((it.group_instance_id or it.member_id, it.error_code) for it in response.members)
            return [Outcome(name, error_of(code, None, name)) for name, code in named]

        return await cluster.retrying(f"LeaveGroup of {group_id}", attempt, deadline_ms)


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
