"""DescribeCluster.

Brokers as the caller's listener sees them; fenced ones only when asked for (version 2). The answering broker
names itself as controller, as in Metadata. Endpoint type 2 (controllers) is refused with
MISMATCHED_ENDPOINT_TYPE: controllers describe themselves, on listeners of their own.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext

_BROKERS = 1
_ENDPOINT_TYPES = {_BROKERS: "brokers", 2: "controllers"}


def refuse_endpoint_type(request: DescribeClusterRequest, version: int, served: int) -> None:
    """Raises :class:`KafkaError` unless the request asks for the ``served`` endpoint type."""
    wanted = request.endpoint_type
    if wanted == served:
        return
    code = ErrorCode.INVALID_REQUEST  # version 0 has neither endpoint types nor their errors
    if version >= 1:
        known = wanted in _ENDPOINT_TYPES
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    raise KafkaError(
        code,
        f"this listener describes {_ENDPOINT_TYPES[served]} (endpoint type {served}),"
        f" not endpoint type {wanted}",
    )


async def handle(
    services: BrokerServices, context: RequestContext, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    refuse_endpoint_type(request, version, served=_BROKERS)
    cache = services.metadata
    listed = []
    for broker in cache.brokers():
        endpoint = broker.endpoint(context.listener)
        if endpoint is None or (broker.fenced and not (version >= 2 and request.include_fenced_brokers)):
            continue
        listed.append(
            DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    wants_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=cache.cluster_id,
        controller_id=cache.node_id,
        brokers=listed,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )
