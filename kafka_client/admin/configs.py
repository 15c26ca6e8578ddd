"""Configurations, and the resources that have some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.results import ConfigChange, ConfigEntry
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

_CORDONED: Final = "cordoned.log.dirs"


class ConfigResource(NamedTuple):
    type: ConfigResourceType
    name: str


class ConfigOperations(Operations):
    async def describe_configs(
        self,
        resource_type: ConfigResourceType,
        name: str,
        keys: Sequence[str] | None = None,
        *,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> list[ConfigEntry]:
        """All configurations of a resource (or only ``keys``), with their synonyms."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> list[ConfigEntry]:
            resource = DescribeConfigsResource(
                resource_type=int(resource_type),
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
            request = DescribeConfigsRequest(
                resources=[resource], include_synonyms=True, include_documentation=include_documentation
            )
            if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
                await _find_broker(cluster, int(name), deadline_ms)
                response = await cluster.ask_broker(int(name), request, deadline_ms)
            else:
                response = await cluster.ask_any(request, deadline_ms)
            result = response.results[0]
            check(result.error_code, result.error_message, f"DescribeConfigs of {name}")
            return [_entry(config) for config in result.configs]

        return await cluster.retrying(f"DescribeConfigs of {name}", attempt, deadline_ms)

    async def alter_configs(
        self,
        resource_type: ConfigResourceType,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Apply changes key by key, leaving other keys alone; all of them or none.

        Any broker takes them, except for log levels, which are those of one node, and for directories that
        are to be cordoned: only their broker knows them.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        adds = {change.name for change in changes if change.operation is not ConfigOperation.DELETE}
        is_cordon = resource_type == ConfigResourceType.BROKER and name.isdecimal() and _CORDONED in adds
        is_for_one = is_cordon or resource_type == ConfigResourceType.BROKER_LOGGER

        async def attempt() -> None:
            resource = AlterConfigsResource(
                resource_type=int(resource_type),
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=change.name, config_operation=int(change.operation), value=change.value
                    )
                    for change in changes
                ],
            )
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
            if is_for_one:
                await _find_broker(cluster, int(name), deadline_ms)
                answer = cluster.ask_broker(int(name), request, deadline_ms)
            else:
                answer = cluster.ask_any(request, deadline_ms)
            for result in (await answer).responses:
                check(result.error_code, result.error_message, f"IncrementalAlterConfigs of {name}")

        await cluster.retrying(f"IncrementalAlterConfigs of {name}", attempt, deadline_ms)

    async def list_config_resources(
        self, types: Collection[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """The resources of these types (none: of all) that can be described or have been configured."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> list[ConfigResource]:
            request = ListConfigResourcesRequest(resource_types=[int(it) for it in types])
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, None, "ListConfigResources")
            return [
                ConfigResource(ConfigResourceType(it.resource_type), it.resource_name)
                for it in response.config_resources
            ]

        return await cluster.retrying("ListConfigResources", attempt, deadline_ms)


async def _find_broker(cluster: Cluster, broker_id: int, deadline_ms: int) -> None:
    """It may be at another address by now. Controllers have no Metadata: they stay where they were found."""
    if broker_id not in cluster.metadata.brokers or not cluster.asks_controllers:
        await cluster.refresh([], deadline_ms)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        documentation=config.documentation,
        synonyms=tuple(
            (synonym.name, synonym.value, _source(synonym.source)) for synonym in config.synonyms or ()
        ),
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource.__members__.values() else ConfigSource.UNKNOWN
