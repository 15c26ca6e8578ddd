"""What a request handler may reach: the parts of one broker, gathered for the handlers in ``apis``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykraft.broker.config import BrokerConfig
from pykraft.broker.controller_channel import ControllerChannel
from pykraft.broker.lifecycle import BrokerLifecycle
from pykraft.broker.metadata_cache import MetadataCache
from pykraft.broker.producer_ids import ProducerIdAllocator
from pykraft.broker.replica_manager import ReplicaManager
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.runtime.clock import Clock
from pykraft.runtime.properties import ConfigKey


@dataclass(frozen=True, slots=True)
class ServerProperty:
    """One property of the running broker, as DescribeConfigs shows it. ``value`` None: not set."""

    key: ConfigKey
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of a running broker."""

    config: BrokerConfig
    clock: Clock
    metadata: MetadataCache
    lifecycle: BrokerLifecycle
    controller: ControllerChannel
    replicas: ReplicaManager
    groups: GroupCoordinatorService
    producer_ids: ProducerIdAllocator
    server_properties: Mapping[str, ServerProperty]
    kraft_version: Callable[[], int]
    """The quorum's own feature level: 1 where the voters stand in the log (KIP-853)."""
