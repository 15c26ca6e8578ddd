"""The resources that have configurations of their own."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pykraft.kafka_client.admin.cluster import check
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.messages.configs import ListConfigResourcesRequest


class ConfigResource(NamedTuple):
    type: ConfigResourceType
    name: str


async def list_config_resources(
    cluster: Cluster, types: Collection[ConfigResourceType], deadline_ms: int
) -> list[ConfigResource]:
    """Resources of these types (none: of all), in the broker's order (KIP-1142)."""

    async def attempt() -> list[ConfigResource]:
        request = ListConfigResourcesRequest(resource_types=[int(it) for it in types])
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, None, "ListConfigResources")
        return [
            ConfigResource(ConfigResourceType(it.resource_type), it.resource_name)
            for it in response.config_resources
        ]

    return await cluster.retrying("ListConfigResources", attempt, deadline_ms)
