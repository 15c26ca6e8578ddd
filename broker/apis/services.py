"""The parts of one broker or controller that the request handlers in ``apis`` may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pykraft.broker.apis.topic_creation import TopicCreations
from pykraft.broker.config import BrokerConfig
from pykraft.broker.fetch_sessions.cache import FetchSessionCache
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.leading.partition_markers import PartitionMarkers
from pykraft.broker.replicas.placement.log_moves import LogMoves
from pykraft.broker.replicas.ports import OffsetsTransactions, TransactionVerifier
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import MetadataImage
from pykraft.runtime.clock import Clock
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import TaskSupervisor, Workers
from pykraft.transaction_coordinator.service import TransactionCoordinatorService


class MetadataView(Protocol):
    """The id of this node, its cluster, and the newest image it answers from."""

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def image(self) -> MetadataImage: ...


class ControllerPort(Protocol):
    """Forwards requests to the active controller."""

    async def forward(
        self,
        context: RequestContext,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: int,
        own_timeout_ms: Callable[[], int] | None = None,
    ) -> bytes:
        """The active controller's answer to a client's request; bodies are encoded as in ``api_version``.

        ``own_timeout_ms`` reads the client's own timeout from the request, if there is no answer at once.
        """
        ...


class Loggers(Protocol):
    """The loggers of this node and their levels, by Kafka's names."""

    def levels(self) -> Mapping[str, str]: ...

    def set_level(self, name: str, level: str | None) -> None: ...


class NodeServices(Protocol):
    """The parts that brokers and controllers have in common, for handlers that serve on both."""

    @property
    def metadata(self) -> MetadataView: ...

    @property
    def controller(self) -> ControllerPort: ...

    @property
    def server_properties(self) -> Mapping[str, str]:
        """The settings in this node's properties file."""
        ...

    @property
    def kraft_version(self) -> Callable[[], int]: ...

    @property
    def loggers(self) -> Loggers: ...

    @property
    def slices(self) -> Slices: ...


@dataclass(frozen=True, slots=True)
class ControllerServices:
    """The parts of a running controller that its clients' requests need."""

    metadata: MetadataView
    controller: ControllerPort
    server_properties: Mapping[str, str]
    kraft_version: Callable[[], int]
    loggers: Loggers
    slices: Slices
    leader_id: Callable[[], int | None]
    """The id of the active controller as far as this one knows."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of a running broker."""

    config: BrokerConfig
    clock: Clock
    metadata: MetadataCache
    lifecycle: BrokerLifecycle
    controller: ControllerChannel
    creations: TopicCreations
    replicas: ReplicaManager
    logs: LogManager
    moves: LogMoves
    isr_proposals: IsrProposals
    fetch_sessions: FetchSessionCache
    wakeups: Wakeups
    tasks: TaskSupervisor
    slices: Slices
    """For requests that name very many items."""
    workers: Workers
    groups: GroupCoordinatorService
    transactions: TransactionCoordinatorService
    markers: PartitionMarkers
    verifier: TransactionVerifier
    offsets_transactions: OffsetsTransactions
    server_properties: Mapping[str, str]
    loggers: Loggers
    kraft_version: Callable[[], int]
    """The finalized level of ``kraft.version``: 1 if the voter set is kept in the log (KIP-853)."""
