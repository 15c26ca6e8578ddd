"""Groups of both protocols: list, delete, committed offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.admin.topics import error_of
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinators import (
    ask_coordinator,
    ask_coordinators,
    find_coordinator,
)
from pykraft.kafka_client.errors import UnsupportedByBrokerError, check
from pykraft.kafka_client.group.committed_offsets import group_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import BrokerDescription, CommittedOffset, GroupListing, Outcome
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest, ListGroupsResponse

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
