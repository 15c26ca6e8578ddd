"""Administrators of ring 2 set dynamic configurations, and take them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.requests import ClientRequests
    from pykraft.jepsen_like.simulation.cluster.world import World


class SettingsAdmin:
    """``to_clear``: the names of the settings that :meth:`clear` removes everywhere."""

    def __init__(self, world: World, requests: ClientRequests, to_clear: frozenset[str]) -> None:
        self._world = world
        self._requests = requests
        self._to_clear = to_clear

    async def set(
        self, node: SimNode, kind: ConfigResourceType, resource: str, name: str, value: str | None
    ) -> None:
        """Through the broker ``node``; None removes it."""
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        config = AlterableConfig(name=name, config_operation=int(operation), value=value)
        asked = AlterConfigsResource(resource_type=int(kind), resource_name=resource, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[asked])
        response = await self._requests.call(node, request)
        for result in response.responses:
            self._requests.note(f"set {name} = {value} of", resource or "all brokers", result.error_code)
            if result.error_code == ErrorCode.NONE and value is not None:
                self._world.checker.config_altered(int(kind), resource, name, value)

    @property
    def is_clear(self) -> bool:
        return not self._found()

    def _found(self) -> list[tuple[int, str, str]]:
        return sorted(key for key in self._world.checker.model.configs if key[2] in self._to_clear)

    async def clear(self, node: SimNode) -> None:
        """Remove the settings from all resources."""
        for kind, resource, name in self._found():
            await self.set(node, ConfigResourceType(kind), resource, name, None)
