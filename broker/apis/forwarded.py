"""What only the active controller can do, passed on to it from any broker:

CreateTopics (19) 2-7, DeleteTopics (20) 1-6, CreatePartitions (37) 0-3, IncrementalAlterConfigs (44) 0-1,
DescribeQuorum (55) 0-2.

The request travels in its own Kafka encoding with the caller's identity. While a controller is being elected
the broker goes on trying within the time the client gave.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.broker.dispatch import Api, Message
from pykraft.broker.services import BrokerServices
from pykraft.kafka_protocol.api_keys import ApiKey, response_class
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from pykraft.kafka_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykraft.kafka_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from pykraft.kafka_protocol.messages.describe_quorum import DescribeQuorumResponse
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext

_MAX_WAIT_MS = 30_000
_MIN_WAIT_MS = 1000
"""A client that gives no time means "do not wait for me": the controller is asked all the same."""


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    timeout_ms = getattr(request, "timeout_ms", _MAX_WAIT_MS)
    body = await services.controller.forward(
        request.API_KEY,
        version,
        request.encode(version),
        principal=context.principal,
        client_id=context.client_id,
        client_address=context.client_address,
        listener=context.listener,
        timeout_ms=min(max(timeout_ms, _MIN_WAIT_MS), services.config.controller_request_timeout_ms),
    )
    return response_class(ApiKey(request.API_KEY)).decode(body, version)


def _create_topics_error(request: Message, version: int, error: KafkaError) -> Message:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _delete_topics_error(request: Message, version: int, error: KafkaError) -> Message:
    if version >= 6:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
                for topic in request.topics
            ]
        )
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name in request.topic_names
        ]
    )


def _create_partitions_error(request: Message, version: int, error: KafkaError) -> Message:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _alter_configs_error(request: Message, version: int, error: KafkaError) -> Message:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe_quorum_error(request: Message, version: int, error: KafkaError) -> Message:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)


def _forwarded(
    key: ApiKey, low: int, high: int, error_response: Callable[[Message, int, KafkaError], Message]
) -> Api:
    return Api(key, low, high, handle, error_response)


APIS = (
    _forwarded(ApiKey.CREATE_TOPICS, 2, 7, _create_topics_error),
    _forwarded(ApiKey.DELETE_TOPICS, 1, 6, _delete_topics_error),
    _forwarded(ApiKey.CREATE_PARTITIONS, 0, 3, _create_partitions_error),
    _forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _alter_configs_error),
    _forwarded(ApiKey.DESCRIBE_QUORUM, 0, 2, _describe_quorum_error),
)
