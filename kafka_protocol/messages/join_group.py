"""JoinGroup (11): enter a classic group and wait for the rebalance.

From version 4 a member without an id is refused with MEMBER_ID_REQUIRED and given an id to join with; static
members (``group_instance_id``, version 5) are accepted at once. Version 7 names the protocol type, 8 a
reason, 9 tells a returning static leader to skip the assignment.
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


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = byte_string()


@message(11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
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


@message(11, versions="0-9", flexible="6+")
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
