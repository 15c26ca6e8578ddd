"""One node: the composition root. Here, and only here, are the parts made and joined.

Order of a start: check the directories; open and recover the metadata log; take the controller's addresses
(if a controller); join the quorum; then the broker. The way down is the reverse: the broker hands over first,
while there is still a quorum to tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from pykraft import __version__
from pykraft.broker.membership.controller_channel import ControllerChannel, endpoint_messages
from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY, CorruptCheckpointError, CorruptLogError
from pykraft.log_store.log import Log, LogConfig
from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.metadata_log.controller import rpc as controller_rpc
from pykraft.metadata_log.controller.driver import ControllerDriver, Registrar
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.metadata_log.snapshot_generator import SnapshotGenerator
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig
from pykraft.node.broker_node import BrokerNode
from pykraft.node.broker_settings import controller_config
from pykraft.node.config import ServerConfig
from pykraft.node.controller_listeners import ControllerListeners
from pykraft.node.errors import StartError
from pykraft.node.format import NodeIdentity, check_directories
from pykraft.node.quorum_watch import QuorumWatch
from pykraft.node.world import World
from pykraft.quorum.bootstrap import BootstrapError, read_bootstrap_voters
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, VoterSet
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.runtime.address import is_loopback
from pykraft.runtime.rpc import RpcAddress, RpcServer, RpcTransport

logger = logging.getLogger(__name__)

_GRACE_MS = 200
_REGISTER_CONTROLLER_TIMEOUT_MS = 5000
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

    def __init__(self, config: ServerConfig, world: World) -> None:
        self.config = config
        self._world = world
        self._disk = world.disk
        self._clock = world.clock
        # Metadata flushes must not queue behind the flushes of partitions, nor behind a snapshot.
        self._flush_executor = world.executor(2, "metadata-flush")
        self._transport: RpcTransport | None = None
        self._server: RpcServer | None = None
        self._quorum: QuorumNode | None = None
        self._log: Log | None = None
        self._controller: ControllerDriver | None = None
        self.broker: BrokerNode | None = None
        self.loader: MetadataLoader | None = None
        self._snapshots: SnapshotGenerator | None = None
        self._controller_listeners: ControllerListeners | None = None
        self._watch: QuorumWatch | None = None

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
        # All the modules: to look through them takes longer than any turn of the loop should.
        self._world.settle_memory()
        config = self.config
        identity = check_directories(self._disk, config)
        roles = ", ".join(sorted(config.roles))
        logger.info(
            "pykraft %s: node %d (%s) of cluster %s starts, with its data in %s",
            *(__version__, config.node_id, roles, identity.cluster_id, ", ".join(config.all_dirs)),
        )
        voters = self._voters()
        self._transport = self._world.rpc_transport()
        quorum = self._quorum = self._make_quorum(identity, voters)
        controller: ControllerDriver | None = None
        if config.is_controller:
            listeners = self._controller_listeners = ControllerListeners(config, self._world)
            endpoints = await listeners.bind()
            controller = self._controller = self._make_controller(identity, quorum, endpoints)
            await self._start_server(quorum, controller)
        if config.is_broker:
            self.broker = BrokerNode(config, identity, self._world)
        snapshots = self._snapshots = SnapshotGenerator(
            SnapshotConfig.from_properties(config.values),
            quorum,
            self._clock,
            self._world.fatal,
        )
        loader = self.loader = MetadataLoader(
            [] if self.broker is None else [self.broker.publisher],
            controller,
            snapshots,
            self._world.settle_memory,
            high_watermark=lambda: quorum.high_watermark,
        )
        watch = self._watch = QuorumWatch(
            self._clock, asyncio.get_running_loop().call_later, lambda: quorum.voters
        )
        watch.start()
        await quorum.start([loader, watch])
        snapshots.start()
        if controller is not None:
            await controller.start()
            await listeners.start_serving(identity.cluster_id, controller, quorum)
        if self.broker is not None:
            await self.broker.start(self._transport, quorum, loader)
        logger.info("node %d is up at %s", config.node_id, ", ".join(self._addresses()))

    def _addresses(self) -> list[str]:
        """Where clients and controllers find this node."""
        known = [] if self.broker is None else list(self.broker.endpoints())
        listener = self.config.controller_listener
        found = [f"{it.name}://{RpcAddress(it.host, it.port)}" for it in known]
        if listener is not None:
            found.append(
                f"{listener.name}://{RpcAddress(listener.advertised_host, listener.advertised_port)}"
            )
        return found

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
            if self._watch is not None:
                last_to_first.callback(self._watch.stop)
            if self._snapshots is not None:
                last_to_first.push_async_callback(self._snapshots.stop)
            if self._controller is not None:
                last_to_first.push_async_callback(self._controller.stop)
            if self._controller_listeners is not None:
                last_to_first.push_async_callback(self._controller_listeners.stop)
            if self.broker is not None:
                last_to_first.push_async_callback(self.broker.stop)

    def _voters(self) -> VoterSet:
        """What is known of the voters before the log is read: they may have changed since."""
        directory = f"{self.config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
        if self.config.static_voters is not None:
            return self.config.static_voters
        voters = read_bootstrap_voters(self._disk, directory)
        if voters is not None:
            return voters
        if not self.config.bootstrap_servers:
            raise ConfigError(
                "nothing says who the voters are: set controller.quorum.bootstrap.servers or"
                " controller.quorum.voters, or format with --standalone or --initial-controllers"
            )
        return NO_VOTERS

    def _make_quorum(self, identity: NodeIdentity, voters: VoterSet) -> QuorumNode:
        config = self.config
        directory = f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
        self._disk.make_dirs(directory)
        self._log = Log.open(
            self._disk,
            directory,
            LogConfig(
                segment_bytes=config.integer("metadata.log.segment.bytes"),
                segment_ms=config.integer("metadata.log.segment.ms"),
            ),
            now_ms=self._clock.wall_ms(),
        )
        assert self._transport is not None
        return QuorumNode(
            config=QuorumConfig.from_properties(config.values, bootstrap_servers=config.bootstrap_servers),
            cluster_id=identity.cluster_id,
            local=ReplicaKey(config.node_id, identity.directory_ids[config.metadata_log_dir]),
            voters=voters,
            log=self._log,
            state_store=QuorumStateStore(self._disk, directory),
            transport=self._transport,
            clock=self._clock,
            rng=self._world.chance(),
            on_fatal=self._world.fatal,
            flush_executor=self._flush_executor,
            local_address=config.controller_address,
        )

    def _make_controller(
        self, identity: NodeIdentity, quorum: QuorumNode, endpoints: Sequence[Endpoint]
    ) -> ControllerDriver:
        config = self.config
        assert config.controller_listener is not None
        return ControllerDriver(
            node_id=config.node_id,
            config=controller_config(config),
            cluster_id=identity.cluster_id,
            clock=self._clock,
            rng=self._world.chance(),
            bootstrap_features=self._bootstrap_features(),
            quorum=quorum,
            register=self._make_registrar(identity.cluster_id, quorum, endpoints),
            endpoints=tuple(endpoints),
            listener_name=config.controller_listener.name,
            on_fatal=self._world.fatal,
        )

    def _make_registrar(
        self, cluster_id: str, quorum: QuorumNode, endpoints: Sequence[Endpoint]
    ) -> Registrar:
        assert self._transport is not None
        channel = ControllerChannel(self._transport, quorum.leader_address, self._clock, self._world.chance())
        request = pb.RegisterControllerRequest(
            cluster_id=cluster_id,
            controller_id=self.config.node_id,
            features=[
                pb.Feature(name=feature.name, min_level=feature.min_level, max_level=feature.max_level)
                for feature in SUPPORTED_RANGES
            ],
            session_timeout_ms=self.config.integer("broker.session.timeout.ms"),
            endpoints=endpoint_messages(endpoints),
        )

        async def register() -> None:
            await channel.call(
                "RegisterController",
                request,
                pb.RegisterControllerResponse.FromString,
                _REGISTER_CONTROLLER_TIMEOUT_MS,
            )

        return register

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
        if not is_loopback(listener.host):
            logger.warning(
                "listener %s at %s can be reached from other machines and asks nobody who it is:"
                " whoever reaches it administers the cluster; let only the cluster's own nodes through",
                listener.name,
                RpcAddress(listener.host or "0.0.0.0", listener.port),
            )
        server = self._server = self._world.rpc_server()
        try:
            await server.bind(listener.host, listener.port)
        except OSError as error:
            address = f"{listener.name}://{listener.host}:{listener.port}"
            raise OSError(f"cannot listen on {address}: {error}") from error
        quorum.register(server)
        controller_rpc.register(server, controller)
        await server.start()
