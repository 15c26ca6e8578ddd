"""DescribeConfigs.

Every configuration of a resource with its value, its source and the values that it overrides. Any broker
describes topics, groups and client metrics subscriptions; a broker is described only by itself: its
properties (those that can be changed while it runs are not read-only) and the levels of its loggers.
Properties that only Kafka reads are included, with Kafka's defaults. The broker with the empty name holds the
settings for all brokers. An empty list of names asks for all, as null does. A value of the properties file in
minutes or hours has that file as its source; Kafka calls it a default. What topics, or groups, have in common
is encoded once (:mod:`pykraft.broker.apis.cluster.config_table`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import partial

from pykraft.broker.apis.cluster.config_table import OWN_SOURCE, ConfigTable, Layer, described_config
from pykraft.broker.apis.services import NodeServices
from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.kafka_keys import THROTTLE_KEYS
from pykraft.configuration.keys import ConfigKey
from pykraft.configuration.server_keys import DYNAMIC_KEYS, SERVER_KEYS, names_of
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.codec.schema import EncodedRuns
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.broker_configs import ALL_BROKERS, dynamic_broker_values
from pykraft.metadata_log.image import MetadataImage


def handle(
    services: NodeServices, context: RequestContext, request: DescribeConfigsRequest, version: int
) -> Generator[None, None, DescribeConfigsResponse]:
    description = _Description(services, request, version)
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            result.configs = yield from description.configs(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
        yield
    return response


class _Description:
    """One request, answered from one image."""

    def __init__(self, services: NodeServices, request: DescribeConfigsRequest, version: int) -> None:
        self._services = services
        self._image = services.metadata.image
        self._encode = partial(_encode, request, version)
        self._tables: dict[ConfigResourceType, ConfigTable] = {}

    def configs(self, resource: DescribeConfigsResource) -> Generator[None, None, EncodedRuns]:
        """Encoded. No names, or an empty list of them: all configurations."""
        services, image, name = self._services, self._image, resource.resource_name
        wanted = set(resource.configuration_keys or ())
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                if image.topic(name) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
                table = yield from self._table(ConfigResourceType.TOPIC, self._topic_keys())
                return table.configs(image.topic_config(name), wanted)
            case ConfigResourceType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
                table = yield from self._table(ConfigResourceType.GROUP, self._group_keys())
                return table.configs(image.resource_config(ConfigResourceType.GROUP, name), wanted)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "the name of the client metrics subscription is empty"
                    )
                keys = ((key, ()) for key in CLIENT_METRICS_KEYS.values())
                table = yield from self._table(ConfigResourceType.CLIENT_METRICS, keys)
                return table.configs(image.resource_config(ConfigResourceType.CLIENT_METRICS, name), wanted)
            case ConfigResourceType.BROKER if name == ALL_BROKERS:
                described = _configs_of_all_brokers(image)
            case ConfigResourceType.BROKER:
                _require_this_broker(services, name)
                described = _properties(services, image)
            case ConfigResourceType.BROKER_LOGGER:
                _require_this_broker(services, name)
                described = _log_levels(services)
            case kind:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configurations")
        entries = []
        for config in described:
            if not wanted or config.name in wanted:
                entries.append(self._encode(config))
            yield
        return EncodedRuns(entries, len(entries))

    def _table(
        self, kind: ConfigResourceType, keys: Iterable[tuple[ConfigKey, Iterable[Layer]]]
    ) -> Generator[None, None, ConfigTable]:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = ConfigTable(OWN_SOURCE[kind], self._encode)
            for key, layers in keys:
                table.add(key, list(layers))
                yield
        return table

    def _topic_keys(self) -> Iterator[tuple[ConfigKey, Iterable[Layer]]]:
        for _, key in sorted(TOPIC_KEYS.items()):
            yield key, self._layers(key.server_property) if key.server_property else ()

    def _group_keys(self) -> Iterator[tuple[ConfigKey, Iterable[Layer]]]:
        for name, key in sorted(GROUP_KEYS.items()):
            if key.server_property is not None:
                yield key, self._layers(key.server_property)
            else:
                default = key.default
                yield key, () if default is None else ((name, default, ConfigSource.DEFAULT_CONFIG),)

    def _layers(self, name: str) -> Iterable[Layer]:
        return _broker_layers(self._services, self._image, name)


def _require_this_broker(services: NodeServices, name: str) -> None:
    if name != str(services.metadata.node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {services.metadata.node_id}, not {name}")


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


def _configs_of_all_brokers(image: MetadataImage) -> Iterator[DescribeConfigsResourceResult]:
    """Only the values that are set: all others are each broker's own."""
    for name, value in sorted(image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS).items()):
        if name in DYNAMIC_KEYS:
            layers = [(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
            yield described_config(DYNAMIC_KEYS[name], layers, read_only=False)


def _properties(services: NodeServices, image: MetadataImage) -> Iterator[DescribeConfigsResourceResult]:
    set_here = dynamic_broker_values(image, services.metadata.node_id)
    throttles = {name: key for name, key in THROTTLE_KEYS.items() if name in set_here}
    for name, key in sorted({**SERVER_KEYS, **throttles}.items()):
        layers = list(_broker_layers(services, image, name))
        yield described_config(key, layers, read_only=not key.is_dynamic)


def _log_levels(services: NodeServices) -> Iterator[DescribeConfigsResourceResult]:
    for name, level in services.loggers.levels().items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            documentation=None,
        )


def _encode(request: DescribeConfigsRequest, version: int, config: DescribeConfigsResourceResult) -> bytes:
    """With what the request asks for."""
    if not request.include_synonyms:
        config.synonyms = []
    if not request.include_documentation:
        config.documentation = None
    return DescribeConfigsResponse.encode_part(config, version)
