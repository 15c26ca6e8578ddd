"""DescribeCluster (60), versions 0-2.

Brokers as the caller's listener sees them; fenced ones only when asked for (version 2). The answering broker
names itself as controller, as in Metadata. Endpoint type 2 (controllers) is refused with
MISMATCHED_ENDPOINT_TYPE, as a Kafka broker does: the controller listener speaks gRPC, so Kafka's tools reach
the quorum through a broker.
"""

from __future__ import annotations

from pykraft.broker.dispatch import Api, Message
from pykraft.broker.services import BrokerServices
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from pykraft.kafka_protocol.request_context import RequestContext

_BROKERS, _CONTROLLERS = 1, 2


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    if version >= 1 and request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"this listener describes brokers (endpoint type 1), not endpoint type {request.endpoint_type}",
        )
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
    return DescribeClusterResponse(cluster_id=cache.cluster_id, controller_id=cache.node_id, brokers=listed)


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return DescribeClusterResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, handle, error_response)
