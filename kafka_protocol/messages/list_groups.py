"""ListGroups (16): the groups this broker coordinates.

Version 4 filters by state, 5 by type; an empty filter selects every group.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, message, string, struct


@message(16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    states_filter: list[str] = array("string", "4+", distinct=True)
    types_filter: list[str] = array("string", "5+", distinct=True)


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@message(16, versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
