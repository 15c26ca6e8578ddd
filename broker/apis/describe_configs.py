"""DescribeConfigs (32), versions 1-4.

Topics: every topic config with its value, where it comes from and what it would be otherwise. This broker:
its own properties, read-only. Broker loggers have none to show. Other resources and other brokers are
refused per resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pykraft.broker.dispatch import Api, Message
from pykraft.broker.services import BrokerServices, ServerProperty
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.topic_configs import TOPIC_CONFIGS
from pykraft.runtime.properties import ConfigType

_TOPIC, _BROKER, _BROKER_LOGGER = 2, 4, 8


class ConfigSource(IntEnum):
    """Where a value comes from, as the protocol numbers it."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    results = []
    for resource in request.resources:
        try:
            configs = _describe(services, resource)
        except KafkaError as error:
            results.append(_refused(resource, error))
            continue
        for config in configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
        results.append(
            DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
            )
        )
    return DescribeConfigsResponse(results=results)


def _describe(
    services: BrokerServices, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    wanted = resource.configuration_keys
    if resource.resource_type == _TOPIC:
        image = services.metadata.image
        if image.topic(resource.resource_name) is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.resource_name} does not exist"
            )
        described = _topic_configs(image.topic_config(resource.resource_name), services.config.topic_defaults)
    elif resource.resource_type in (_BROKER, _BROKER_LOGGER):
        if resource.resource_name != str(services.config.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {services.config.node_id}, not {resource.resource_name}",
            )
        is_broker = resource.resource_type == _BROKER
        described = [_property(item) for item in services.server_properties.values()] if is_broker else []
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no configurations here"
        )
    return [config for config in described if wanted is None or config.name in wanted]


def _topic_configs(
    overrides: Mapping[str, str], broker_wide: Mapping[str, str]
) -> list[DescribeConfigsResourceResult]:
    results = []
    for name, key in sorted(TOPIC_CONFIGS.items()):
        layers: list[tuple[str, str | None, ConfigSource]] = []
        if name in overrides:
            layers.append((name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        if name in broker_wide:
            layers.append((key.broker_synonym or name, broker_wide[name], ConfigSource.STATIC_BROKER))
        layers.append((key.broker_synonym or name, key.default, ConfigSource.DEFAULT))
        _, value, source = layers[0]
        results.append(
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=[
                    DescribeConfigsSynonym(name=synonym, value=text, source=origin)
                    for synonym, text, origin in layers
                ],
                config_type=key.type.value,
                documentation=key.documentation,
            )
        )
    return results


def _property(item: ServerProperty) -> DescribeConfigsResourceResult:
    sensitive = item.key.type is ConfigType.PASSWORD
    source = ConfigSource.DEFAULT if item.is_default else ConfigSource.STATIC_BROKER
    value = None if sensitive else item.value
    return DescribeConfigsResourceResult(
        name=item.key.name,
        value=value,
        read_only=True,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=[DescribeConfigsSynonym(name=item.key.name, value=value, source=source)],
        config_type=item.key.type.value,
        documentation=item.key.documentation,
    )


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return DescribeConfigsResponse(results=[_refused(resource, error) for resource in request.resources])


API = Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, handle, error_response)
