"""DescribeConfigs.

Every configuration of a resource with its value, where the value comes from and which values it overrides.
Any broker describes topics, groups and client metrics subscriptions; a broker is described only by itself:
its properties (those that can be changed while it runs are not read-only) and the levels of its loggers.
Properties that only Kafka reads are included, with Kafka's defaults. The broker with the empty name holds the
settings for all brokers. A resource named twice is described twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.broker.apis.services import NodeServices
from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.kafka_keys import THROTTLE_KEYS
from pykraft.configuration.keys import ConfigKey
from pykraft.configuration.server_keys import DYNAMIC_KEYS, SERVER_KEYS, in_its_unit, names_of
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.broker_configs import ALL_BROKERS, dynamic_broker_values
from pykraft.metadata_log.image import MetadataImage

Layer = tuple[str, str, ConfigSource]
"""(name, value, source): one place where a value is given."""


async def handle(
    services: NodeServices, context: RequestContext, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
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
    services: NodeServices, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    image, name, wanted = services.metadata.image, resource.resource_name, resource.configuration_keys
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            described = _topic_configs(services, image, name)
        case ConfigResourceType.BROKER if name == ALL_BROKERS:
            described = _configs_of_all_brokers(image)
        case ConfigResourceType.BROKER:
            _require_this_broker(services, name)
            described = _properties(services, image)
        case ConfigResourceType.BROKER_LOGGER:
            _require_this_broker(services, name)
            described = _log_levels(services)
        case ConfigResourceType.CLIENT_METRICS:
            described = _client_metrics(image, name)
        case ConfigResourceType.GROUP:
            described = _group_configs(services, image, name)
        case kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configurations")
    return [config for config in described if wanted is None or config.name in wanted]


def _require_this_broker(services: NodeServices, name: str) -> None:
    if name != str(services.metadata.node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {services.metadata.node_id}, not {name}")


def _topic_configs(
    services: NodeServices, image: MetadataImage, topic: str
) -> list[DescribeConfigsResourceResult]:
    if image.topic(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
    overrides = image.topic_config(topic)
    results = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if key.is_internal and name not in overrides:
            continue
        layers: list[Layer] = []
        if name in overrides:
            layers.append((name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
        if key.server_property:
            layers += _broker_layers(services, image, key.server_property)
        results.append(_result(key, layers, read_only=False))
    return results


def _broker_layers(services: NodeServices, image: MetadataImage, name: str) -> Iterable[Layer]:
    """The places where a property of this broker is given, the one that takes effect first."""
    names = names_of(name)
    own = image.resource_config(ConfigResourceType.BROKER, str(services.metadata.node_id))
    for_all = image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS)
    places = {
        ConfigSource.DYNAMIC_BROKER_CONFIG: own,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: for_all,
        ConfigSource.STATIC_BROKER_CONFIG: services.server_properties,
    }
    for source, values in places.items():
        yield from ((one, values[one], source) for one in names if one in values)
    for one in names:
        default = SERVER_KEYS[one].default if one in SERVER_KEYS else None
        if default is not None:
            yield one, default, ConfigSource.DEFAULT_CONFIG


def _configs_of_all_brokers(image: MetadataImage) -> list[DescribeConfigsResourceResult]:
    """Only the values that are set: all others are each broker's own."""
    return [
        _result(DYNAMIC_KEYS[name], [(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)], False)
        for name, value in sorted(image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS).items())
        if name in DYNAMIC_KEYS
    ]


def _properties(services: NodeServices, image: MetadataImage) -> list[DescribeConfigsResourceResult]:
    set_here = dynamic_broker_values(image, services.metadata.node_id)
    throttles = {name: key for name, key in THROTTLE_KEYS.items() if name in set_here}
    return [
        _result(key, list(_broker_layers(services, image, name)), read_only=not key.is_dynamic)
        for name, key in sorted({**SERVER_KEYS, **throttles}.items())
    ]


def _log_levels(services: NodeServices) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            documentation=None,
        )
        for name, level in services.loggers.levels().items()
    ]


def _client_metrics(image: MetadataImage, name: str) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the client metrics subscription is empty")
    overrides = image.resource_config(ConfigResourceType.CLIENT_METRICS, name)
    results = []
    for key in CLIENT_METRICS_KEYS.values():
        is_set = key.name in overrides
        layers = (
            [(key.name, overrides[key.name], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)] if is_set else []
        )
        results.append(_result(key, list(layers), read_only=False))
    return results


def _group_configs(
    services: NodeServices, image: MetadataImage, group: str
) -> list[DescribeConfigsResourceResult]:
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    overrides = image.resource_config(ConfigResourceType.GROUP, group)
    results = []
    for name, key in sorted(GROUP_KEYS.items()):
        layers: list[Layer] = []
        if name in overrides:
            layers.append((name, overrides[name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        if key.server_property is not None:
            layers += _broker_layers(services, image, key.server_property)
        elif key.default is not None:
            layers.append((name, key.default, ConfigSource.DEFAULT_CONFIG))
        results.append(_result(key, layers, read_only=False))
    return results


def _result(key: ConfigKey, layers: list[Layer], read_only: bool) -> DescribeConfigsResourceResult:
    value, source = key.default, ConfigSource.DEFAULT_CONFIG
    if layers:
        name, value, source = layers[0]
        if name != key.name:
            value = in_its_unit(name, value)
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.is_sensitive else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=key.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if key.is_sensitive else text, source=origin)
            for name, text, origin in layers
        ],
        config_type=key.type.value,
        documentation=key.documentation,
    )


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
