"""Groups of both protocols: list, describe, delete, committed offsets.

A group lives on its coordinator. After an error that means "not here" or "not yet" the client asks
FindCoordinator again. Describing asks for a consumer group first (KIP-848) and falls back to the classic
call, since only the coordinator knows the type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pykraft.kafka_client.admin_cluster import check
from pykraft.kafka_client.admin_results import (
    BrokerDescription,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Outcome,
)
from pykraft.kafka_client.admin_topics import each, error_of
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.connection import R
from pykraft.kafka_client.group_config import GroupIdentity
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.consumer_protocol import decode_assignment
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykraft.kafka_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykraft.kafka_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykraft.kafka_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykraft.kafka_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykraft.kafka_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.schema import Message
from pykraft.runtime.address import Address

GROUP_KEY = 0
_LAST_OFFSET_FETCH_BY_NAME = 9


async def find_coordinator(cluster: Cluster, group_id: str, deadline_ms: int) -> BrokerDescription:
    what = f"coordinator of group {group_id}"
    return await cluster.retrying(
        what, lambda: ask_for_coordinator(cluster, group_id, deadline_ms), deadline_ms
    )


async def ask_for_coordinator(cluster: Cluster, group_id: str, deadline_ms: int) -> BrokerDescription:
    """One attempt; the caller retries."""
    request = FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY, coordinator_keys=[group_id])
    response = await cluster.ask_any(request, FindCoordinatorResponse, deadline_ms)
    if response.coordinators:
        result = response.coordinators[0]
        check(result.error_code, result.error_message, f"FindCoordinator of {group_id}")
        return BrokerDescription(result.node_id, result.host, result.port, None)
    check(response.error_code, response.error_message, f"FindCoordinator of {group_id}")
    return BrokerDescription(response.node_id, response.host, response.port, None)


async def list_groups(
    cluster: Cluster, deadline_ms: int, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """The groups of every broker. Fails if one broker cannot be asked: a partial list would mislead."""

    async def attempt() -> list[GroupListing]:
        await cluster.refresh([], deadline_ms)
        found: dict[str, GroupListing] = {}
        for broker_id in sorted(cluster.metadata.brokers):
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
            response = await cluster.ask_broker(broker_id, request, ListGroupsResponse, deadline_ms)
            check(response.error_code, None, f"ListGroups of broker {broker_id}")
            for group in response.groups:
                found[group.group_id] = GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type, broker_id
                )
        return [found[group_id] for group_id in sorted(found)]

    return await cluster.retrying("ListGroups", attempt, deadline_ms)


async def describe_group(cluster: Cluster, group_id: str, deadline_ms: int) -> GroupDescription:
    """Raises GROUP_ID_NOT_FOUND for a group that does not exist."""

    async def attempt() -> GroupDescription:
        coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
        try:
            return await _describe_consumer(cluster, coordinator, group_id, deadline_ms)
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await _describe_classic(cluster, coordinator, group_id, deadline_ms)

    return await cluster.retrying(f"DescribeGroups of {group_id}", attempt, deadline_ms)


async def delete_groups(cluster: Cluster, group_ids: Sequence[str], deadline_ms: int) -> list[Outcome]:
    async def attempt(left: Sequence[str]) -> Iterable[Outcome]:
        outcomes = []
        for group_id in left:
            coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
            response = await _ask(
                cluster,
                coordinator,
                DeleteGroupsRequest(groups_names=[group_id]),
                DeleteGroupsResponse,
                deadline_ms,
            )
            outcomes += [
                Outcome(result.group_id, error_of(result.error_code, None, result.group_id))
                for result in response.results
            ]
        return outcomes

    return await each(cluster, "DeleteGroups", group_ids, attempt, deadline_ms)


async def group_offsets(
    cluster: Cluster,
    group_id: str,
    deadline_ms: int,
    partitions: Sequence[TopicPartition] | None = None,
    member: GroupIdentity | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group (None: all); partitions without one are left out.

    With ``member`` the request names it, and fails with STALE_MEMBER_EPOCH if the group is past its epoch.
    """

    async def attempt() -> dict[TopicPartition, CommittedOffset]:
        coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
        request = _offset_fetch_request(group_id, partitions, member)
        response = await _ask(
            cluster,
            coordinator,
            request,
            OffsetFetchResponse,
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


async def _describe_consumer(
    cluster: Cluster, coordinator: BrokerDescription, group_id: str, deadline_ms: int
) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    response = await _ask(cluster, coordinator, request, ConsumerGroupDescribeResponse, deadline_ms)
    result = response.groups[0]
    check(result.error_code, result.error_message, f"ConsumerGroupDescribe of {group_id}")
    return GroupDescription(
        group_id=result.group_id,
        type="consumer",
        state=result.group_state,
        protocol_type="consumer",
        assignor=result.assignor_name,
        coordinator=coordinator,
        group_epoch=result.group_epoch,
        assignment_epoch=result.assignment_epoch,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_assignment(member.assignment),
                member_epoch=member.member_epoch,
                target_assignment=_assignment(member.target_assignment),
                subscribed_topics=tuple(member.subscribed_topic_names),
                subscribed_regex=member.subscribed_topic_regex,
                rack=member.rack_id,
            )
            for member in result.members
        ),
    )


async def _describe_classic(
    cluster: Cluster, coordinator: BrokerDescription, group_id: str, deadline_ms: int
) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    response = await _ask(cluster, coordinator, request, DescribeGroupsResponse, deadline_ms)
    result = response.groups[0]
    if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND or result.group_state == "Dead":
        # Before version 6 a coordinator describes a group that does not exist as dead.
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
    check(result.error_code, result.error_message, f"DescribeGroups of {group_id}")
    return GroupDescription(
        group_id=result.group_id,
        type="classic",
        state=result.group_state,
        protocol_type=result.protocol_type,
        assignor=result.protocol_data,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_classic_assignment(result.protocol_type, member.member_assignment),
            )
            for member in result.members
        ),
    )


def _assignment(assignment: Assignment) -> dict[str, tuple[int, ...]]:
    return {topic.topic_name: tuple(sorted(topic.partitions)) for topic in assignment.topic_partitions}


def _classic_assignment(protocol_type: str, data: bytes) -> dict[str, tuple[int, ...]]:
    """The assigned partitions of a member of a classic group.

    Empty for groups of another type (Connect has its own format), for members without an assignment, and if
    the bytes, which the clients write, cannot be decoded.
    """
    if protocol_type != "consumer" or not data:
        return {}
    try:
        assigned, _ = decode_assignment(data)
    except ProtocolError:
        return {}
    return {topic.topic: tuple(sorted(topic.partitions)) for topic in assigned.assigned_partitions}


def _offset_fetch_request(
    group_id: str, partitions: Sequence[TopicPartition] | None, member: GroupIdentity | None
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
    return OffsetFetchRequest(group_id=group_id, topics=alone, groups=[group])


async def _ask(
    cluster: Cluster,
    coordinator: BrokerDescription,
    request: Message,
    response_type: type[R],
    deadline_ms: int,
    *,
    max_version: int | None = None,
) -> R:
    connection = await cluster.connection(Address(coordinator.host, coordinator.port), deadline_ms)
    by = cluster.request_deadline(deadline_ms)
    return await connection.call(request, response_type, by, max_version=max_version)
