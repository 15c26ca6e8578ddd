"""Without an authorizer every client may do everything: the numbers are Apache Kafka 4.3's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis import groups
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from pykraft.group_coordinator.config import GroupConfig
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import consumer_group_describe, describe_groups
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.features import GROUP_VERSION

GROUPS = [("here", ErrorCode.NONE), ("gone", ErrorCode.GROUP_ID_NOT_FOUND)]


def test_bit_fields_are_those_of_kafka_without_an_authorizer() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("messages", [describe_groups, consumer_group_describe])
def test_described_groups_include_operations_if_asked_and_without_an_error(
    messages: ModuleType, wanted: bool
) -> None:
    described = [messages.DescribedGroup(group_id=name, error_code=code) for name, code in GROUPS]
    if messages is describe_groups:
        request: describe_groups.DescribeGroupsRequest | consumer_group_describe.ConsumerGroupDescribeRequest
        request = describe_groups.DescribeGroupsRequest(groups=["here", "gone"])
        response: Message = describe_groups.DescribeGroupsResponse(groups=described)
    else:
        request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["here", "gone"])
        response = consumer_group_describe.ConsumerGroupDescribeResponse(groups=described)
    request.include_authorized_operations = wanted

    class Coordinator:
        async def describe_groups(self, *_: object) -> Message:
            return response

        consumer_group_describe = describe_groups
        config = GroupConfig()

    image = SimpleNamespace(features={GROUP_VERSION: 1})
    services = cast(
        BrokerServices, SimpleNamespace(groups=Coordinator(), metadata=SimpleNamespace(image=image))
    )
    describe: Callable[..., Coroutine[Any, Any, Any]] = groups.describe_groups
    if messages is consumer_group_describe:
        describe = groups.consumer_group_describe
    answer = asyncio.run(describe(services, RequestContext(), request, 1))
    operations = [group.authorized_operations for group in answer.groups]
    assert operations == [GROUP_OPERATIONS if wanted else NOT_ASKED, NOT_ASKED]
