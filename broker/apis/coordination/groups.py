"""The group APIs, all answered by the group coordinator on this broker.

A broker that knows it is fenced coordinates no group: it tells the client to look for the coordinator again.
The consumer protocol is served once the feature ``group.version`` is finalized at 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import GROUP_OPERATIONS
from pykraft.broker.serving.api import Handler, Q, R
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import groups
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.features import GROUP_VERSION


def ask(
    method: Callable[[GroupCoordinatorService, RequestContext, Q, int], Awaitable[R | bytes]],
) -> Handler[BrokerServices, Q, R]:
    """A handler that passes the request to the coordinator."""

    def handle(
        services: BrokerServices, context: RequestContext, request: Q, version: int
    ) -> Awaitable[R | bytes]:
        return method(services.groups, context, request, version)

    return handle


def consumer_group_heartbeat(
    services: BrokerServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest, version: int
) -> Awaitable[ConsumerGroupHeartbeatResponse]:
    _require_consumer_protocol(services)
    return services.groups.consumer_group_heartbeat(context, request, version)


def describe_groups(
    services: BrokerServices,
    context: RequestContext,
    request: groups.DescribeGroupsRequest,
    version: int,
) -> Awaitable[groups.DescribeGroupsResponse]:
    return services.groups.describe_groups(context, request, version, _operations(request))


def consumer_group_describe(
    services: BrokerServices,
    context: RequestContext,
    request: groups.ConsumerGroupDescribeRequest,
    version: int,
) -> Awaitable[groups.ConsumerGroupDescribeResponse]:
    _require_consumer_protocol(services)
    return services.groups.consumer_group_describe(context, request, version, _operations(request))


def _require_consumer_protocol(services: BrokerServices) -> None:
    level = services.metadata.image.features.get(GROUP_VERSION, 0)
    if level < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"the consumer protocol needs {GROUP_VERSION} 1; it is {level}"
        )
    if "consumer" not in services.groups.config.rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The consumer rebalance protocol is disabled.")


def _operations(
    request: groups.DescribeGroupsRequest | groups.ConsumerGroupDescribeRequest,
) -> int | None:
    return GROUP_OPERATIONS if request.include_authorized_operations else None
