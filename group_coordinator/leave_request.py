"""LeaveGroup as a message: the members that leave, and the answer for each, in every version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_BATCHED_VERSION = 3


MEMBERS_AT_ONCE: Final = 200
"""Ten milliseconds of work."""


def leave_some_at_a_time(request: LeaveGroupRequest) -> Iterator[LeaveGroupRequest]:
    """The request in parts, each of which may be decided by itself; at least one."""
    members = request.members
    for start in range(0, len(members) or 1, MEMBERS_AT_ONCE):
        some = members[start : start + MEMBERS_AT_ONCE]
        yield LeaveGroupRequest(group_id=request.group_id, member_id=request.member_id, members=some)


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """The members that leave: several from version 3 on, one before."""
    return request.members if version >= _BATCHED_VERSION else [MemberIdentity(member_id=request.member_id)]


def build_leave_response(
    identities: Sequence[MemberIdentity], codes: Sequence[ErrorCode], version: int
) -> LeaveGroupResponse:
    if version < _BATCHED_VERSION:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
            for identity, code in zip(identities, codes, strict=True)
        ]
    )
