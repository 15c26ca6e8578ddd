"""Heartbeat (12): a member of a classic group reports that it is alive; the answer may tell it to rejoin."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, int16, int32, message, string


@message(12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(12, versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
