"""Creation of topics that a request needs: auto-created topics and ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage

_VERSION = 7
_TIMEOUT_MS = 5000
_APPEARANCE_TIMEOUT_MS = 2000


async def create_topic(
    services: BrokerServices,
    context: RequestContext,
    name: str,
    *,
    num_partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
) -> TopicImage | None:
    """Create ``name`` through the controller and wait until this broker's image has it.

    None if the image does not have it yet; :class:`KafkaError` with the controller's reason if it refused. A
    topic that another request has created meanwhile is as good.
    """
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=num_partitions,
                replication_factor=replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
                ],
            )
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    body = await services.controller.forward(
        ApiKey.CREATE_TOPICS,
        _VERSION,
        request.encode(_VERSION),
        principal=context.principal,
        client_id=context.client_id,
        client_address=context.client_address,
        listener=context.listener,
        timeout_ms=_TIMEOUT_MS,
    )
    (result,) = CreateTopicsResponse.decode(body, _VERSION).topics
    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
    await services.metadata.wait_until(
        lambda image: image.topic(name) is not None, timeout_ms=_APPEARANCE_TIMEOUT_MS
    )
    return services.metadata.image.topic(name)
