"""Messages of group members and about groups, of both protocols, and how to find a coordinator."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    boolean,
    byte_string,
    int8,
    int16,
    int32,
    message,
    nested,
    response_to,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@message(10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """FindCoordinator (10): which broker coordinates a group or a transactional id.

    Key type 0 is a group, 1 a transactional id, 2 a share partition. Version 4 asks for many keys at once and
    moves the answer, errors included, into a list; both shapes live in these classes.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array("string", "4+")


@struct
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response_to(FindCoordinatorRequest)
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = byte_string()


@message(11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """JoinGroup (11): enter a classic group and wait for the rebalance.

    From version 4 a member without an id is refused with MEMBER_ID_REQUIRED and given an id to join with;
    static members (``group_instance_id``, version 5) are accepted at once. Version 7 names the protocol type,
    8 a reason, 9 tells a returning static leader to skip the assignment.
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = byte_string()


@response_to(JoinGroupRequest)
class JoinGroupResponse(Message):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = byte_string()


@message(14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """SyncGroup (14): the leader of a classic group hands in the assignment, every member gets its share."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@response_to(SyncGroupRequest)
class SyncGroupResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = byte_string()


@message(12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Heartbeat (12): a member of a classic group is alive; the answer may tell it to rejoin."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@response_to(HeartbeatRequest)
class HeartbeatResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


@struct
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@message(13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """LeaveGroup (13): members leave a classic group. Version 3 removes many, by member or instance id."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


@response_to(LeaveGroupRequest)
class LeaveGroupResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


@message(15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """DescribeGroups (15): state and members of classic groups.

    Version 6 adds a message and answers GROUP_ID_NOT_FOUND; before, an unknown group is described as dead.
    """

    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


@response_to(DescribeGroupsRequest)
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


@message(16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """ListGroups (16): the groups this broker coordinates.

    Version 4 filters by state, 5 by type; an empty filter selects every group.
    """

    states_filter: list[str] = array("string", "4+", distinct=True)
    types_filter: list[str] = array("string", "5+", distinct=True)


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@response_to(ListGroupsRequest)
class ListGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@message(42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """DeleteGroups (42): delete groups that have no members, and their offsets."""

    groups_names: list[str] = array("string", distinct=True)


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@response_to(DeleteGroupsRequest)
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


@struct
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


@message(68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """ConsumerGroupHeartbeat (68): the whole consumer group protocol of KIP-848 in one request.

    Member epoch 0 joins, -1 leaves, -2 leaves but keeps a static member's place. A null field means unchanged
    since the last heartbeat. In the answer a null assignment means unchanged. Version 1 adds a regular
    expression subscription and has the client choose the member id (KIP-1082).
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(
        "string", nullable="0+", default_null=True, distinct=True
    )
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = array(
        ConsumerGroupHeartbeatRequestTopicPartitions, nullable="0+", default_null=True
    )


@struct
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


@struct
class HeartbeatAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


@response_to(ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = nested(HeartbeatAssignment, nullable="0+")


@message(69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """ConsumerGroupDescribe (69): state, members, current and target assignments of KIP-848 groups.

    Version 1 says for each member whether it still speaks the classic protocol.
    """

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


@struct
class TopicPartitions:
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    member_type: int = int8("1+", default=-1)


@struct
class ConsumerDescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


@response_to(ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = int32()
    groups: list[ConsumerDescribedGroup] = array(ConsumerDescribedGroup)
