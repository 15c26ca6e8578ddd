"""DescribeCluster on a controller's listener (KIP-919).

The controllers that have registered an endpoint under the name of the caller's listener, and which of them is
active: -1 while there is no active controller, or while it has not registered one. It describes controllers
(endpoint type 2) only, so version 0, which cannot ask for them, is refused.
"""

from __future__ import annotations

from pykraft.broker.apis.cluster.describe_cluster import refuse_endpoint_type
from pykraft.broker.apis.services import ControllerServices
from pykraft.kafka_protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext

_CONTROLLERS = 2


async def handle(
    services: ControllerServices, context: RequestContext, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    refuse_endpoint_type(request, version, served=_CONTROLLERS)
    listed = [
        DescribeClusterBroker(broker_id=registration.controller_id, host=endpoint.host, port=endpoint.port)
        for _, registration in sorted(services.metadata.image.controllers.items())
        for endpoint in registration.endpoints
        if endpoint.name == context.listener
    ]
    leader_id = services.leader_id()
    active = [controller.broker_id for controller in listed if controller.broker_id == leader_id]
    return DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=services.metadata.cluster_id,
        controller_id=active[0] if active else -1,
        brokers=listed,
    )
