"""One error for a whole request, in the shape each group API has for it."""

from __future__ import annotations

from typing import Any

from pykraft.group_coordinator import describe, offset_fetch
from pykraft.group_coordinator.classic_rebalance import join_error
from pykraft.group_coordinator.offsets import build_commit_error
from pykraft.kafka_protocol.api_keys import ApiKey, response_class
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykraft.kafka_protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pykraft.kafka_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest
from pykraft.kafka_protocol.messages.offset_commit import OffsetCommitRequest
from pykraft.kafka_protocol.messages.offset_fetch import OffsetFetchRequest
from pykraft.kafka_protocol.schema import Message


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    """The response to ``request`` that says ``error`` for everything it asked."""
    match request:
        case OffsetCommitRequest():
            return build_commit_error(request, error.code)
        case OffsetFetchRequest():
            groups = offset_fetch.groups_of(request, version)
            answers = [offset_fetch.build_group_error(group, error.code, version) for group in groups]
            return offset_fetch.build_response(answers, version)
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(
                groups=[describe.describe_error(group_id, error.code) for group_id in request.groups]
            )
        case ConsumerGroupDescribeRequest():
            return ConsumerGroupDescribeResponse(
                groups=[
                    describe.consumer_describe_error(group_id, error.code) for group_id in request.group_ids
                ]
            )
        case DeleteGroupsRequest():
            return DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=error.code)
                    for group_id in request.groups_names
                ]
            )
        case JoinGroupRequest():
            return join_error(error.code, request.member_id)
        case _:
            # Every other group API has one error code for the whole answer.
            response_type: Any = response_class(ApiKey(request.API_KEY))
            answer: Message = response_type(error_code=error.code)
            return answer
