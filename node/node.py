"""One node: the composition root. Only this file makes the parts of a node and connects them.

Order of a start: check the directories; bind the addresses; open and recover the metadata log; make the
parts; serve other nodes; join the quorum; then start the broker. A node that is alone in its quorum serves
other nodes last. A stop is the reverse: the broker hands over first, while there is still a quorum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from pykraft import __version__
from pykraft.broker.config import ListenerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel, endpoint_messages
from pykraft.compiled import form
from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.log_store.interface import (
    METADATA_LOG_DIRECTORY,
    CorruptCheckpointError,
    CorruptLogError,
    LogConfig,
)
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.bootstrap import read_bootstrap_checkpoint
from pykraft.metadata_log.controller.calls import rpc as controller_rpc
from pykraft.metadata_log.controller.driver import ControllerDriver, Registrar
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.metadata_log.snapshot_generator import SnapshotGenerator
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig
from pykraft.node.broker_node import BrokerNode
from pykraft.node.broker_settings import controller_config
from pykraft.node.client_listeners import ClientListeners
from pykraft.node.config import ServerConfig
from pykraft.node.controller_listeners import make_controller_requests
from pykraft.node.errors import StartError
from pykraft.node.format import NodeIdentity, check_directories
from pykraft.node.os_errors import describe
from pykraft.node.quorum_watch import QuorumWatch
from pykraft.node.world import World
from pykraft.quorum.bootstrap import BootstrapError, read_bootstrap_voters
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, VoterSet
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.runtime.address import Address, is_loopback
from pykraft.runtime.rpc import RpcServer, RpcTransport
from pykraft.runtime.tasks import run_in_turn

logger = logging.getLogger(__name__)

_GRACE_MS = 200
_REGISTER_CONTROLLER_TIMEOUT_MS = 5000
_ALONE_MS = 500
"""How long a node that needs no other to start keeps others waiting."""
_REFUSALS = (
    CorruptLogError,
    CorruptCheckpointError,
    QuorumStateError,
    BootstrapError,
    OSError,
    ValueError,
)


class Node:
    """A controller, a broker, or both, on one event loop.

    Its parts exist once :meth:`start` has made them; ``controller`` and ``broker`` are None if the node does
    not have that role.
    """

    log: Log
    transport: RpcTransport
    quorum: QuorumNode
    loader: MetadataLoader
    controller: ControllerDriver | None
    broker: BrokerNode | None

    def __init__(self, config: ServerConfig, world: World) -> None:
        self.config = config
        self._world = world
        self._made = AsyncExitStack()
        self._leading = AsyncExitStack()

    async def start(self) -> None:
        """Start; returns once the node serves (a broker: once it is unfenced).

        Raises :class:`ConfigError` if the configuration or the formatting must be corrected,
        :class:`StartError` for damage and addresses in use.
        """
        try:
            await self._start()
        except _REFUSALS as error:
            if isinstance(error, ConfigError):
                raise
            said = describe(error) if isinstance(error, OSError) else error
            raise StartError(f"node {self.config.node_id} does not start: {said}") from error
        except KafkaError as error:
            raise StartError(f"node {self.config.node_id} does not start: {error.message}") from error

    async def _start(self) -> None:
        config, world, made = self.config, self._world, self._made
        # Exempt all modules: a collection that visits them takes longer than a turn of the loop should.
        world.exclude_from_gc()
        identity = check_directories(world.disk, config, world.unusable_dirs)
        logger.info(
            "pykraft %s (%s): node %d (%s) of cluster %s starts, with its data in %s",
            *(__version__, form(), config.node_id, ", ".join(sorted(config.roles))),
            *(identity.cluster_id, ", ".join(config.all_dirs)),
        )
        voters = self._known_voters()
        # Addresses first: one that is in use ends the start before anything is opened.
        listener = config.controller_listener
        server = None if listener is None else await self._bind_server(listener)
        broker_clients, broker_endpoints = await self._bind_listeners(config.broker_listeners)
        clients, endpoints = await self._bind_listeners(config.controller_client_listeners)

        log = self.log = self._open_log()
        transport = self.transport = world.rpc_transport()
        made.push_async_callback(transport.close)
        quorum = self.quorum = self._make_quorum(identity, voters, log, transport)
        controller = self.controller = (
            self._make_controller(identity, quorum, transport, endpoints) if config.is_controller else None
        )
        broker = self.broker = (
            BrokerNode(config, identity, world, transport, quorum, broker_clients, broker_endpoints)
            if config.is_broker
            else None
        )
        snapshots = SnapshotGenerator(
            SnapshotConfig.from_properties(config.values), quorum, world.clock, world.fatal
        )
        loader = self.loader = MetadataLoader(
            () if broker is None else broker.publishers,
            controller,
            snapshots,
            world.exclude_from_gc,
            high_watermark=lambda: quorum.high_watermark,
        )
        watch = QuorumWatch(world.clock, world.streams.loop.call_later, lambda: quorum.voters)

        if controller is not None and server is not None:
            quorum.register(server)
            controller_rpc.register(server, controller)
        alone = self._is_alone(quorum)
        if server is not None and not alone:
            await self._serve_nodes(server)
        made.push_async_callback(quorum.stop)
        watch.start()
        made.callback(watch.stop)
        await quorum.start([loader, watch])
        if server is not None and alone and not self._is_alone(quorum):
            alone = False  # the log names voters that were added since the formatting
            await self._serve_nodes(server)
        snapshots.start()
        made.push_async_callback(snapshots.stop)
        if controller is not None:
            made.push_async_callback(controller.stop)
            await controller.start()
            await self._serve_clients(identity, clients, controller, quorum)
        if broker is not None:
            made.push_async_callback(broker.stop)
            self._leading.push_async_callback(broker.hand_over)
            if server is not None and alone:
                await run_in_turn(broker.start(), partial(self._serve_nodes, server), _ALONE_MS)
            else:
                await broker.start()
        logger.info("node %d is up at %s", config.node_id, ", ".join(self._addresses(broker_endpoints)))

    def _addresses(self, known: Sequence[Endpoint]) -> list[str]:
        """The addresses at which clients and controllers reach this node."""
        listener = self.config.controller_listener
        found = [f"{it.name}://{Address(it.host, it.port)}" for it in known]
        if listener is not None:
            found.append(f"{listener.name}://{Address(listener.advertised_host, listener.advertised_port)}")
        return found

    async def hand_over(self) -> None:
        """Hand over leaderships while there is a quorum. :meth:`stop` also does it, if necessary."""
        await self._leading.aclose()

    async def stop(self) -> None:
        """Hand over and stop; safe after a failed start. All parts stop even if one of them fails."""
        await self._made.aclose()

    async def abandon(self) -> None:
        """Stop as if the process had died, as far as others can tell: nothing is handed over."""
        broker: BrokerNode | None = getattr(self, "broker", None)
        if broker is not None:
            broker.refuse_to_hand_over()
        await self.stop()

    async def _bind_server(self, listener: ListenerConfig) -> RpcServer:
        """The server of a controller for other controllers and for brokers."""
        server = self._world.rpc_server()
        self._made.push_async_callback(server.stop, _GRACE_MS)
        if not is_loopback(listener.host):
            logger.warning(
                "listener %s at %s can be reached from other machines and has no authentication:"
                " every client that reaches it administers the cluster; admit only the cluster's own nodes",
                listener.name,
                Address(listener.host or "0.0.0.0", listener.port),
            )
        with self._naming(listener):
            await server.bind(listener.host, listener.port)
        return server

    async def _serve_nodes(self, server: RpcServer) -> None:
        """Serve the calls of other nodes."""
        listener = self.config.controller_listener
        assert listener is not None
        try:
            with self._naming(listener):
                await server.start()
        except ImportError as error:  # clients may be served by now: a traceback would not say what is wrong
            raise StartError(f"node {self.config.node_id} does not start: gRPC: {error}") from error

    @staticmethod
    @contextmanager
    def _naming(listener: ListenerConfig) -> Iterator[None]:
        """Errors of the system name the listener."""
        try:
            yield
        except OSError as error:
            address = f"{listener.name}://{listener.host}:{listener.port}"
            raise OSError(f"cannot listen on {address}: {error}") from error

    def _is_alone(self, quorum: QuorumNode) -> bool:
        """Whether the broker of this node starts without a call to or from another node: the only voter is
        its own controller, at the address of this process.
        """
        addresses = [voter.address for voter in quorum.voters]
        return self.config.is_broker and quorum.is_voter and addresses == [self.config.controller_address]

    async def _bind_listeners(
        self, configured: Sequence[ListenerConfig]
    ) -> tuple[ClientListeners, tuple[Endpoint, ...]]:
        listeners = ClientListeners(self.config, configured, self._world.streams)
        self._made.push_async_callback(listeners.stop)
        return listeners, await listeners.bind()

    async def _serve_clients(
        self,
        identity: NodeIdentity,
        clients: ClientListeners,
        controller: ControllerDriver,
        quorum: QuorumNode,
    ) -> None:
        """Serve the clients of a controller."""
        if not clients:
            logger.info(
                "controller.listener.names has no second name: --bootstrap-controller of Kafka's tools"
                " has no listener here"
            )
        requests = make_controller_requests(self.config, self._world, identity.cluster_id, controller, quorum)
        self._made.push_async_callback(clients.stop)
        self._made.push_async_callback(requests.close)
        self._made.push_async_callback(clients.stop_listening)
        await clients.start_serving(requests)

    def _open_log(self) -> Log:
        config, world = self.config, self._world
        directory = self._log_directory
        world.disk.make_dirs(directory)
        log = Log.open(
            world.disk,
            directory,
            LogConfig(
                segment_bytes=config.integer("metadata.log.segment.bytes"),
                segment_ms=config.integer("metadata.log.segment.ms"),
            ),
            now_ms=world.clock.wall_ms(),
        )
        self._made.callback(log.close)
        return log

    @property
    def _log_directory(self) -> str:
        return f"{self.config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"

    def _known_voters(self) -> VoterSet:
        """The voters that are known before the log is read: they may have changed since."""
        if self.config.static_voters is not None:
            return self.config.static_voters
        voters = read_bootstrap_voters(self._world.disk, self._log_directory)
        if voters is not None:
            return voters
        if not self.config.bootstrap_servers:
            raise ConfigError(
                "the voters are unknown: set controller.quorum.bootstrap.servers or"
                " controller.quorum.voters, or format with --standalone or --initial-controllers"
            )
        return NO_VOTERS

    def _make_quorum(
        self, identity: NodeIdentity, voters: VoterSet, log: Log, transport: RpcTransport
    ) -> QuorumNode:
        config, world = self.config, self._world
        # Metadata flushes must not wait for the flushes of partitions, nor for a snapshot.
        flush_executor = world.executor(2, "metadata-flush")
        self._made.callback(flush_executor.shutdown, wait=False)
        return QuorumNode(
            config=QuorumConfig.from_properties(config.values, bootstrap_servers=config.bootstrap_servers),
            cluster_id=identity.cluster_id,
            local=ReplicaKey(config.node_id, identity.directory_ids[config.metadata_log_dir]),
            voters=voters,
            log=log,
            state_store=QuorumStateStore(world.disk, self._log_directory),
            transport=transport,
            clock=world.clock,
            rng=world.new_rng(),
            on_fatal=world.fatal,
            flush_executor=flush_executor,
            local_address=config.controller_address,
        )

    def _make_controller(
        self,
        identity: NodeIdentity,
        quorum: QuorumNode,
        transport: RpcTransport,
        endpoints: Sequence[Endpoint],
    ) -> ControllerDriver:
        config, world = self.config, self._world
        assert config.controller_listener is not None
        return ControllerDriver(
            node_id=config.node_id,
            config=controller_config(config),
            cluster_id=identity.cluster_id,
            clock=world.clock,
            rng=world.new_rng(),
            bootstrap_features=self._bootstrap_features(),
            quorum=quorum,
            register=self._make_registrar(identity.cluster_id, quorum, transport, endpoints),
            endpoints=tuple(endpoints),
            listener_name=config.controller_listener.name,
            on_fatal=world.fatal,
        )

    def _make_registrar(
        self, cluster_id: str, quorum: QuorumNode, transport: RpcTransport, endpoints: Sequence[Endpoint]
    ) -> Registrar:
        world = self._world
        channel = ControllerChannel(transport, quorum.leader_address, world.clock, world.new_rng())
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
            return read_bootstrap_checkpoint(self._world.disk, directory)
        except FileNotFoundError:
            raise ConfigError(
                f"{directory} has no bootstrap.checkpoint: it was not formatted as a metadata directory"
            ) from None
