"""ListGroups, DescribeGroups and ConsumerGroupDescribe: groups as an administrator sees them.

Read-only, and a member at a time, since a group may have thousands. DescribeGroups describes classic groups
only; a client that gets GROUP_ID_NOT_FOUND or the state Dead for a consumer group sends
ConsumerGroupDescribe, and the other way round.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from pykraft.group_coordinator.consumer.target_assignment import preferred_assignor
from pykraft.group_coordinator.state.classic_group import ClassicState
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.records import Partitions, by_topic
from pykraft.group_coordinator.state.shard_state import Group, ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode, shortened
from pykraft.kafka_protocol.messages import groups as consumer_messages
from pykraft.kafka_protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
)

MAX_FILTERS: Final = 1_000
"""The names of states and types in one ListGroups request; there are ten."""
_NOT_FOUND_VERSION = 6
_CLASSIC_MEMBER_TYPE = 0
_CONSUMER_MEMBER_TYPE = 1


class GroupFilter:
    """The filter of a ListGroups request: empty, it matches all groups; an unknown name matches none.

    Case does not matter, nor, as in Kafka, space around the name of a state.
    """

    def __init__(self, request: ListGroupsRequest) -> None:
        self._states = {name.lower().strip() for name in request.states_filter}
        self._types = {name.lower() for name in request.types_filter}

    def matches(self, state_name: str, type_name: str) -> bool:
        return (not self._states or state_name.lower() in self._states) and (
            not self._types or type_name in self._types
        )


def iter_listed(state: ShardState, wanted: GroupFilter) -> Iterator[ListedGroup | None]:
    """The groups that match, in no order; None is a step of the walk that found none."""
    for group_id in state.group_ids():
        group = state.group(group_id)
        assert group is not None
        name, group_type = _state_name(group), _type_name(group)
        if not wanted.matches(name, group_type):
            yield None
            continue
        protocol_type = "consumer" if isinstance(group, ConsumerGroup) else group.protocol_type or ""
        yield ListedGroup(
            group_id=group_id, protocol_type=protocol_type, group_state=name, group_type=group_type
        )


def describe_classic_group(
    state: ShardState, group_id: str, version: int
) -> Generator[None, None, DescribedGroup]:
    """In a rebalance members have their last assignments, as in Kafka. Yields after each member."""
    group = state.classic_group(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id)
        missing.group_state = "Dead"
        if version >= _NOT_FOUND_VERSION:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = _why_missing(state, group_id, "classic")
        return missing
    stable = group.state is ClassicState.STABLE
    members = EncodedElements()
    for member in group.iter_members():
        described = DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(group.protocol_name) if stable else b"",
            member_assignment=member.assignment,
        )
        members.append(DescribeGroupsResponse.encode_part(described, version))
        yield
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=members,
    )


def describe_consumer_group(
    state: ShardState, group_id: str, topics: TopicsView, assignors: Sequence[str], version: int
) -> Generator[None, None, consumer_messages.ConsumerDescribedGroup]:
    """Yields after each member."""
    if not group_id:
        return consumer_messages.ConsumerDescribedGroup(
            group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID
        )
    group = state.consumer_group(group_id)
    if group is None:
        return consumer_messages.ConsumerDescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=_why_missing(state, group_id, "consumer"),
        )
    members = EncodedElements()
    for member in group.iter_members():
        described = _describe_member(group, member, topics)
        members.append(consumer_messages.ConsumerGroupDescribeResponse.encode_part(described, version))
        yield
    return consumer_messages.ConsumerDescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, assignors),
        members=members,
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsView
) -> consumer_messages.Member:
    return consumer_messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_describe_partitions(member.held, topics),
        target_assignment=_describe_partitions(group.target_of(member.member_id), topics),
        member_type=_CONSUMER_MEMBER_TYPE if member.classic is None else _CLASSIC_MEMBER_TYPE,
    )


def _describe_partitions(partitions: Partitions, topics: TopicsView) -> consumer_messages.Assignment:
    described = []
    for topic_id, indexes in by_topic(partitions).items():
        name = topics.topic_name(topic_id)
        if name is not None:
            described.append(
                consumer_messages.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            )
    return consumer_messages.Assignment(topic_partitions=described)


def _why_missing(state: ShardState, group_id: str, wanted: str) -> str:
    is_other = state.group(group_id) is not None
    return shortened(
        f"Group {group_id} is not a {wanted} group." if is_other else f"Group {group_id} not found."
    )


def _state_name(group: Group) -> str:
    return group.state_name if isinstance(group, ConsumerGroup) else group.state.value


def _type_name(group: Group) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"
