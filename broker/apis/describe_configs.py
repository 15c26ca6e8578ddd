"""DescribeConfigs (32), versions 1-4.

Every configuration of a resource with its value, where it comes from and what it would be otherwise. Topics,
groups and subscriptions to client metrics are described by any broker, a broker by itself: its properties
(those that can be changed while it runs are not read-only) and the levels of its loggers. Properties that
only Kafka reads are among them, with Kafka's defaults. The broker with the empty name stands for what is set
for all brokers. A resource named twice is described twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.broker.apis.services import NodeServices
from pykraft.broker.serving.api import Api, Message
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
from pykraft.metadata_log.broker_configs import (
    ALL_BROKERS,
    DYNAMIC_BROKER_CONFIGS,
    dynamic_broker_values,
)
from pykraft.metadata_log.client_metrics_configs import CLIENT_METRICS_CONFIGS
from pykraft.metadata_log.config_source import ConfigSource
from pykraft.metadata_log.group_configs import GROUP_CONFIGS
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import ConfigResourceType
from pykraft.metadata_log.stored_broker_configs import THROTTLES
from pykraft.metadata_log.topic_configs import TOPIC_CONFIGS
from pykraft.runtime.properties import ConfigKey, ConfigType

Layer = tuple[str, str | None, ConfigSource]
"""(name, value, source): one place where a value is given."""


async def handle(services: NodeServices, context: RequestContext, request: Message, version: int) -> Message:
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
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configurations here")
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
    for name, key in sorted(TOPIC_CONFIGS.items()):
        layers: list[Layer] = []
        if name in overrides:
            layers.append((name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        if key.broker_synonym:
            layers += _broker_layers(services, image, key.broker_synonym)
        results.append(_result(key, layers, read_only=False))
    return results


def _broker_layers(services: NodeServices, image: MetadataImage, name: str) -> Iterable[Layer]:
    """Where this broker has a property from, the place that wins first."""
    own = image.resource_config(ConfigResourceType.BROKER, str(services.metadata.node_id))
    for_all = image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS)
    if name in own:
        yield name, own[name], ConfigSource.DYNAMIC_BROKER
    if name in for_all:
        yield name, for_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER
    item = services.server_properties.get(name)
    if item is None:
        return  # no properties file holds it
    if not item.is_default:
        yield name, item.value, ConfigSource.STATIC_BROKER
    if item.key.default is not None:
        yield name, item.key.default, ConfigSource.DEFAULT


def _configs_of_all_brokers(image: MetadataImage) -> list[DescribeConfigsResourceResult]:
    """Only what is set: what holds otherwise is each broker's own."""
    return [
        _result(DYNAMIC_BROKER_CONFIGS[name], [(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)], False)
        for name, value in sorted(image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS).items())
        if name in DYNAMIC_BROKER_CONFIGS
    ]


def _properties(services: NodeServices, image: MetadataImage) -> list[DescribeConfigsResourceResult]:
    keys = {name: item.key for name, item in services.server_properties.items()}
    set_here = dynamic_broker_values(image, services.metadata.node_id)
    keys |= {name: key for name, key in THROTTLES.items() if name in set_here}
    return [
        _result(
            keys[name],
            list(_broker_layers(services, image, name)),
            read_only=name not in DYNAMIC_BROKER_CONFIGS,
        )
        for name in sorted(keys)
    ]


def _log_levels(services: NodeServices) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER, documentation=None
        )
        for name, level in services.loggers.levels().items()
    ]


def _client_metrics(image: MetadataImage, name: str) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the subscription's name is empty")
    overrides = image.resource_config(ConfigResourceType.CLIENT_METRICS, name)
    results = []
    for key in CLIENT_METRICS_CONFIGS.values():
        is_set = key.name in overrides
        layers = [(key.name, overrides[key.name], ConfigSource.CLIENT_METRICS)] if is_set else []
        results.append(_result(key, list(layers), read_only=False))
    return results


def _group_configs(
    services: NodeServices, image: MetadataImage, group: str
) -> list[DescribeConfigsResourceResult]:
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group's name is empty")
    overrides = image.resource_config(ConfigResourceType.GROUP, group)
    results = []
    for name, key in sorted(GROUP_CONFIGS.items()):
        layers: list[Layer] = []
        if name in overrides:
            layers.append((name, overrides[name], ConfigSource.GROUP))
        layers += _broker_layers(services, image, key.broker_synonym)
        results.append(_result(key, layers, read_only=False))
    return results


def _result(key: ConfigKey, layers: list[Layer], read_only: bool) -> DescribeConfigsResourceResult:
    sensitive = key.type is ConfigType.PASSWORD
    shown = [(name, None if sensitive else value, source) for name, value, source in layers]
    _, value, source = shown[0] if shown else (key.name, key.default, ConfigSource.DEFAULT)
    return DescribeConfigsResourceResult(
        name=key.name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=text, source=origin) for name, text, origin in shown
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


def error_response(request: Message, version: int, error: KafkaError) -> Message:
    return DescribeConfigsResponse(results=[_refused(resource, error) for resource in request.resources])


API = Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, handle, error_response)
