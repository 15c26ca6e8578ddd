"""Describing groups of both protocols.

Only the coordinator knows the protocol of a group: it is asked for a consumer group first (KIP-848), and for
a classic one where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinators import ask_coordinator, ask_coordinators
from pykraft.kafka_client.errors import UnsupportedByBrokerError
from pykraft.kafka_client.results import BrokerDescription, GroupDescription, MemberDescription
from pykraft.kafka_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import groups
from pykraft.kafka_protocol.primitives import ProtocolError

_CONSUMER_MEMBER = 1
_UNKNOWN_MEMBER_TYPE = -1

Described = dict[str, GroupDescription | KafkaError]


class GroupDescriptions(Operations):
    async def describe_group(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """Raises GROUP_ID_NOT_FOUND for a group that does not exist."""
        described = (await self.describe_groups([group_id], timeout_ms=timeout_ms))[group_id]
        if isinstance(described, KafkaError):
            raise described
        return described

    async def describe_groups(
        self, group_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription | KafkaError]:
        """Groups of either protocol, or their errors."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def describe(coordinator: BrokerDescription, group_ids: Sequence[str]) -> Described:
            found = await _as_consumer_groups(cluster, coordinator, group_ids, deadline_ms)
            others = [group_id for group_id in group_ids if _may_be_classic(found.get(group_id))]
            if others:
                classic = await _as_classic_groups(cluster, coordinator, others, deadline_ms)
                for group_id, result in classic.items():
                    if not (_is_missing(result) and _is_missing(found.get(group_id))):
                        # else the first answer says more: not found, or not this kind
                        found[group_id] = result
            return found

        return await ask_coordinators(cluster, "DescribeGroups", group_ids, describe, deadline_ms)


def _may_be_classic(result: GroupDescription | KafkaError | None) -> bool:
    codes = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(result, KafkaError) and result.code in codes


def _is_missing(result: GroupDescription | KafkaError | None) -> bool:
    return isinstance(result, KafkaError) and result.code is ErrorCode.GROUP_ID_NOT_FOUND


async def _as_consumer_groups(
    cluster: Cluster, coordinator: BrokerDescription, group_ids: Sequence[str], deadline_ms: int
) -> Described:
    request = groups.ConsumerGroupDescribeRequest(group_ids=list(group_ids))
    try:
        response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
    except UnsupportedByBrokerError as error:
        return dict.fromkeys(group_ids, error)
    return {group.group_id: _consumer_group(group, coordinator) for group in response.groups}


def _consumer_group(
    group: groups.ConsumerDescribedGroup, coordinator: BrokerDescription
) -> GroupDescription | KafkaError:
    if group.error_code:
        return _error(group.error_code, group.error_message, group.group_id)
    return GroupDescription(
        group_id=group.group_id,
        type="consumer",
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=group.assignor_name,
        coordinator=coordinator,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
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
                subscribed_regex=member.subscribed_topic_regex or None,
                rack=member.rack_id,
                upgraded=None
                if member.member_type == _UNKNOWN_MEMBER_TYPE
                else member.member_type == _CONSUMER_MEMBER,
            )
            for member in group.members
        ),
    )


async def _as_classic_groups(
    cluster: Cluster, coordinator: BrokerDescription, group_ids: Sequence[str], deadline_ms: int
) -> Described:
    request = groups.DescribeGroupsRequest(groups=list(group_ids))
    response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
    return {group.group_id: _classic_group(group, coordinator) for group in response.groups}


def _classic_group(
    group: groups.DescribedGroup, coordinator: BrokerDescription
) -> GroupDescription | KafkaError:
    if group.error_code:
        return _error(group.error_code, group.error_message, group.group_id)
    if group.group_state == "Dead":
        # Before version 6 a coordinator describes a group that does not exist as dead.
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} not found.")
    return GroupDescription(
        group_id=group.group_id,
        type="classic",
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_classic_assignment(group.protocol_type, member.member_assignment),
            )
            for member in group.members
        ),
    )


def _error(code: int, message: str | None, group_id: str) -> KafkaError:
    known = ErrorCode(code)
    if message is None and known is ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"Group {group_id} not found."
    return KafkaError(known, message or f"description of group {group_id}: {known.name}")


def _assignment(assignment: groups.Assignment) -> dict[str, tuple[int, ...]]:
    return {topic.topic_name: tuple(sorted(topic.partitions)) for topic in assignment.topic_partitions}


def _classic_assignment(protocol_type: str, data: bytes) -> dict[str, tuple[int, ...]]:
    """The assigned partitions of a member of a classic group.

    Empty for groups of another type (Connect has its own format), for members without an assignment, and if
    the bytes, which the clients write, cannot be decoded.
    """
    if protocol_type != PROTOCOL_TYPE or not data:
        return {}
    try:
        assigned, _ = decode_assignment(data)
    except ProtocolError:
        return {}
    return {topic.topic: tuple(sorted(topic.partitions)) for topic in assigned.assigned_partitions}
