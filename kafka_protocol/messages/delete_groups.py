"""DeleteGroups (42): delete groups that have no members, and their offsets."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, message, string, struct


@message(42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    groups_names: list[str] = array("string", distinct=True)


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message(42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
