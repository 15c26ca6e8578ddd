"""ListConfigResources.

The resources that DescribeConfigs can describe: all topics, all registered brokers (as brokers and as
loggers), and the groups and client metrics subscriptions that have settings of their own. Version 0 asks for
client metrics only. Other types of resources are refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import MetadataImage

_KINDS = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


async def handle(
    services: BrokerServices, context: RequestContext, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    wanted = request.resource_types if version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    for kind in wanted:
        if kind not in _KINDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource type {kind} is unknown")
    image = services.metadata.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=int(kind))
            for kind in _KINDS
            if not wanted or kind in wanted
            for name in _names(image, kind)
        ]
    )


def _names(image: MetadataImage, kind: ConfigResourceType) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return sorted(image.topic_ids)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:
            return sorted(name for resource_type, name in image.configs if resource_type == kind)
