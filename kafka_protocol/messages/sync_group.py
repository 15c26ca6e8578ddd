"""SyncGroup (14): the leader of a classic group hands in the assignment, every member gets its share."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    byte_string,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = byte_string()


@message(14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(14, versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = byte_string()
