"""DescribeGroups (15): state and members of classic groups.

Version 6 adds a message and answers GROUP_ID_NOT_FOUND; before, an unknown group is described as dead.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    message,
    string,
    struct,
)


@message(15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
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


@message(15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
