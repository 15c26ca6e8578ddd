"""The responses to requests that failed as a whole, for the group APIs in which an error is more than a code.

Those of all other APIs are derived from the message tables (:mod:`pykraft.kafka_protocol.error_answers`).
"""

from __future__ import annotations

from pykraft.group_coordinator.classic.rebalance import join_error
from pykraft.group_coordinator.offsets import fetch as offset_fetch
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykraft.kafka_protocol.messages.offsets import OffsetFetchRequest, OffsetFetchResponse

_JOIN_NULL_PROTOCOL_VERSION = 7


def build_join_error(request: JoinGroupRequest, version: int, error: KafkaError) -> JoinGroupResponse:
    """The member keeps the id that it sent."""
    return as_version_has_it(join_error(error.code, request.member_id), version)


def as_version_has_it(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """From version 7 on the protocol name of an error is null; before, it is empty."""
    if response.error_code and version >= _JOIN_NULL_PROTOCOL_VERSION:
        response.protocol_name = None
    return response


def build_heartbeat_error(request: HeartbeatRequest, version: int, error: KafkaError) -> HeartbeatResponse:
    """While a group is being loaded the answer is success: to many clients this error is fatal here."""
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)


def build_sync_error(request: SyncGroupRequest, version: int, error: KafkaError) -> SyncGroupResponse:
    """While a group is being loaded members must rejoin: the old coordinator took the rebalance with it."""
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)


def build_offset_fetch_error(
    request: OffsetFetchRequest, version: int, error: KafkaError
) -> OffsetFetchResponse:
    """Each group carries the error; in version 1, which has no other place for it, each partition does."""
    groups = offset_fetch.groups_of(request, version)
    answers = [offset_fetch.build_group_error(group, error.code, version) for group in groups]
    return offset_fetch.build_response(answers, version)
