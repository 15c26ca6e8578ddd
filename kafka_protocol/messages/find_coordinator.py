"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Key type 0 is a group, 1 a transactional id, 2 a share partition. Version 4 asks for many keys at once and
moves the answer, errors included, into a list; both shapes live in these classes.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int8, int16, int32, message, string, struct


@message(10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
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


@message(10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
