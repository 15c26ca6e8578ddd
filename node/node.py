"""One node: the composition root. Here, and only here, are the parts made and joined.

Order of a start: check the directories; open and recover the metadata log; take the CONTROLLER address (if a
controller); join the quorum; then the broker. The way down is the reverse: the broker hands over first, while
there is still a quorum to tell.
"""

from __future__ import annotations

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY, CorruptCheckpointError, CorruptLogError
from pykraft.log_store.log import Log, LogConfig
from pykraft.metadata_log import controller_rpc
from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller_driver import ControllerDriver
from pykraft.node.broker_node import BrokerNode
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.node.format import NodeIdentity, check_directories
from pykraft.quorum.bootstrap import BootstrapError, read_bootstrap_voters
from pykraft.quorum.config import QuorumConfig
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.listener import QuorumListener
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.quorum.voters import ReplicaKey, VoterSet
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.grpc_rpc import GrpcServer, GrpcTransport
from pykraft.runtime.properties import ConfigError
from pykraft.runtime.tasks import FatalHandler

logger = logging.getLogger(__name__)

_GRACE_MS = 200
_REFUSALS = (
    CorruptLogError,
    CorruptCheckpointError,
    QuorumStateError,
    BootstrapError,
    OSError,
    ValueError,
)


class Node:
    """A controller, a broker, or both, in one process and on one event loop."""

    def __init__(self, config: ServerConfig, disk: Disk, clock: Clock, on_fatal: FatalHandler) -> None:
        self.config = config
        self._disk = disk
        self._clock = clock
        self._on_fatal = on_fatal
        # Metadata flushes must not queue behind the flushes of partitions.
        self._flush_executor = ThreadPoolExecutor(1, thread_name_prefix="metadata-flush")
        self._transport: GrpcTransport | None = None
        self._server: GrpcServer | None = None
        self._quorum: QuorumNode | None = None
        self._log: Log | None = None
        self._controller: ControllerDriver | None = None
        self.broker: BrokerNode | None = None

    async def start(self) -> None:
        """Come up; returns once the node serves (a broker: once it is unfenced).

        :class:`ConfigError` for what the configuration or formatting must put right, :class:`StartError` for
        damage and taken addresses.
        """
        try:
            await self._start()
        except _REFUSALS as error:
            if isinstance(error, ConfigError):
                raise
            raise StartError(f"node {self.config.node_id} does not start: {error}") from error
        except KafkaError as error:
            raise StartError(f"node {self.config.node_id} does not start: {error.message}") from error

    async def _start(self) -> None:
        config = self.config
        identity = check_directories(self._disk, config)
        voters = self._voters()
        self._transport = GrpcTransport()
        listeners: list[QuorumListener] = []
        if config.is_controller:
            self._controller = self._make_controller(identity, voters)
            listeners.append(self._controller)
        if config.is_broker:
            self.broker = BrokerNode(config, identity, self._disk, self._clock, self._on_fatal)
            listeners.append(self.broker.loader)
        self._quorum = self._make_quorum(identity, voters, listeners)
        if self._controller is not None:
            self._controller.attach(self._quorum)
            await self._start_server(self._quorum, self._controller)
        await self._quorum.start()
        if self._controller is not None:
            await self._controller.start()
        if self.broker is not None:
            await self.broker.start(self._transport, self._quorum)
        logger.info("node %d is up (%s)", config.node_id, ", ".join(sorted(config.roles)))

    async def hand_over(self) -> None:
        """Give leaderships away, while there is a quorum to tell. :meth:`stop` does it too, if need be."""
        if self.broker is not None:
            await self.broker.hand_over()

    async def stop(self) -> None:
        """Hand over and go; safe after a start that failed half-way. A part that fails keeps no other."""
        async with AsyncExitStack() as last_to_first:
            if self._log is not None:
                last_to_first.callback(self._log.close)
            if self._transport is not None:
                last_to_first.push_async_callback(self._transport.close)
            if self._server is not None:
                last_to_first.push_async_callback(self._server.stop, _GRACE_MS)
            last_to_first.callback(self._flush_executor.shutdown, wait=False)
            if self._quorum is not None:
                last_to_first.push_async_callback(self._quorum.stop)
            if self._controller is not None:
                last_to_first.push_async_callback(self._controller.stop)
            if self.broker is not None:
                last_to_first.push_async_callback(self.broker.stop)

    def _voters(self) -> VoterSet:
        directory = f"{self.config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
        if self.config.static_voters is not None:
            return self.config.static_voters
        voters = read_bootstrap_voters(self._disk, directory)
        if voters is None:
            raise ConfigError(
                "nothing says who the voters are: set controller.quorum.voters, or format with --standalone"
                " or --initial-controllers"
            )
        if self.config.is_controller and voters.get(self.config.node_id) is None:
            raise ConfigError(f"node {self.config.node_id} is a controller but not among the initial voters")
        return voters

    def _make_quorum(
        self, identity: NodeIdentity, voters: VoterSet, listeners: list[QuorumListener]
    ) -> QuorumNode:
        config = self.config
        directory = f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
        self._disk.make_dirs(directory)
        self._log = Log.open(
            self._disk,
            directory,
            LogConfig(segment_bytes=config.integer("metadata.log.segment.bytes")),
            now_ms=self._clock.wall_ms(),
        )
        assert self._transport is not None
        return QuorumNode(
            config=QuorumConfig(
                election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
                fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
                election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
                request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
                retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
            ),
            cluster_id=identity.cluster_id,
            local=ReplicaKey(config.node_id, identity.directory_ids[config.metadata_log_dir]),
            voters=voters,
            log=self._log,
            state_store=QuorumStateStore(self._disk, directory),
            transport=self._transport,
            clock=self._clock,
            rng=random.Random(),
            listeners=listeners,
            on_fatal=self._on_fatal,
            flush_executor=self._flush_executor,
        )

    def _make_controller(self, identity: NodeIdentity, voters: VoterSet) -> ControllerDriver:
        config = self.config
        return ControllerDriver(
            node_id=config.node_id,
            config=ControllerConfig(
                session_timeout_ms=config.integer("broker.session.timeout.ms"),
                num_partitions=config.integer("num.partitions"),
                default_replication_factor=config.integer("default.replication.factor"),
                topic_defaults=config.topic_defaults,
            ),
            cluster_id=identity.cluster_id,
            clock=self._clock,
            rng=random.Random(),
            bootstrap_features=self._bootstrap_features(),
            voter_endpoints={voter.key.id: voter.address for voter in voters},
            on_fatal=self._on_fatal,
        )

    def _bootstrap_features(self) -> dict[str, int]:
        directory = self.config.metadata_log_dir
        try:
            return read_bootstrap_checkpoint(self._disk, directory)
        except FileNotFoundError:
            raise ConfigError(
                f"{directory} has no bootstrap.checkpoint: it was not formatted as a metadata directory"
            ) from None

    async def _start_server(self, quorum: QuorumNode, controller: ControllerDriver) -> None:
        listener = self.config.controller_listener
        assert listener is not None
        server = GrpcServer(listener.host, listener.port)
        quorum.register(server)
        controller_rpc.register(server, controller)
        await server.start()
        self._server = server
