"""The broker of one node: makes and connects its parts, and starts and stops them in order.

Start: logs, replicas and coordinator, then registration; the client listeners open only when the controller
has unfenced the broker, so that until then a client is refused at once and asks another broker. Stop:
leaderships are handed over, then listeners, coordinator, fetchers, replicas and logs stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar

from pykraft.broker.apis.coordination import write_txn_markers
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.apis.topic_creation import TopicCreations
from pykraft.broker.fetch_sessions.cache import FetchSessionCache
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.membership.alter_partition import ControllerReports
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.broker.membership.producer_ids import ProducerIdAllocator
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.peers.identity import peer_client_id
from pykraft.broker.peers.marker_sender import MarkerSender
from pykraft.broker.peers.peer_network import PeerNetwork
from pykraft.broker.peers.peers import Peers
from pykraft.broker.peers.verifier import CoordinatorVerifier
from pykraft.broker.replicas.data_plane import DataPlane
from pykraft.broker.replicas.leading.coordinator_topic import CoordinatorTopic
from pykraft.broker.replicas.leading.partition_markers import PartitionMarkers
from pykraft.broker.replicas.placement.replica_publisher import ReplicaPublisher
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.serving.listener import ListenerLimits
from pykraft.broker.serving.request_metrics import MeasuredRequests
from pykraft.broker.serving.request_server import RequestServer
from pykraft.configuration.keys import ConfigError, ConfigValue
from pykraft.configuration.settings import Settings
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.metadata_log.broker_configs import concerns_broker, with_dynamic_values
from pykraft.metadata_log.delta import MetadataDelta, build_full_delta
from pykraft.metadata_log.features import SUPPORTED_FEATURES
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.loader import MetadataPublisher
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.metadata_log.refused_values import RefusedValues
from pykraft.node.broker_settings import broker_config
from pykraft.node.client_listeners import ClientListeners
from pykraft.node.config import ServerConfig
from pykraft.node.format import NodeIdentity
from pykraft.node.world import World
from pykraft.quorum.driver import QuorumNode
from pykraft.runtime.rpc import RpcTransport
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import TaskSupervisor, Workers
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.service import TransactionCoordinatorService

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

_PRODUCER_IDS_TIMEOUT_MS = 10_000
_LOG_THREADS = 8
"""Disks work on several requests at a time; most of these threads wait for one."""


class BrokerNode:
    """One broker. ``publishers`` get the changes of metadata from the node's loader, in this order."""

    def __init__(
        self,
        config: ServerConfig,
        identity: NodeIdentity,
        world: World,
        transport: RpcTransport,
        quorum: QuorumNode,
        listeners: ClientListeners,
        endpoints: Sequence[Endpoint],
    ) -> None:
        clock, budget = world.clock, world.streams.budget
        settings = self._config = broker_config(config, identity.cluster_id)
        self._quorum = quorum
        self.listeners = listeners
        self._hands_over = settings.controlled_shutdown_enable
        self._running = AsyncExitStack()
        self._log_threads = world.executor(_LOG_THREADS, "logs")
        workers = Workers(self._log_threads)
        self._heartbeats = TaskSupervisor(world.fatal)

        log_dirs = LogDirs(config.log_dirs, identity.directory_ids, identity.offline, config.metadata_log_dir)
        for path, reason in sorted(log_dirs.offline.items()):
            logger.error("log directory %s cannot be used: %s; its replicas are offline", path, reason)

        # This broker's registration with the controller, and its view of the cluster.
        lifecycle = self.lifecycle = BrokerLifecycle()
        channel = self._channel = ControllerChannel(
            transport,
            quorum.leader_address,
            clock,
            world.new_rng(),
            world.incarnation.id,
            lambda: quorum.delivered_offset,
        )
        metadata = self.metadata = MetadataCache(config.node_id, identity.cluster_id, EMPTY_IMAGE)
        self._driver = LifecycleDriver(
            settings,
            lifecycle,
            channel,
            clock,
            incarnation_id=world.incarnation.id,
            dead_incarnation_secrets=world.incarnation.dead_secrets,
            endpoints=endpoints,
            log_dir_ids=log_dirs.online_ids,
            offline_log_dir_ids=log_dirs.offline_ids,
            cordoned_log_dir_ids=log_dirs.cordoned_ids,
            metadata_offset=self.applied_offset,
            features=SUPPORTED_FEATURES,
        )
        log_dirs.on_cordoned = self._driver.handle_cordoned_log_dirs
        self._last_applied_offset = -1

        # The replicas, and the coordinator that stores its groups in some of them.
        table = ReplicaTable()
        self.groups = GroupCoordinatorService(
            GroupConfig.from_properties(config.values),
            CoordinatorTopic(OFFSETS_TOPIC, table, lifecycle, clock, workers),
            clock,
            world.new_rng(),
            world.fatal,
            lease=lifecycle,
            on_growth=world.exclude_from_gc,
            turns=budget,
            workers=workers,
            observer=world.group_observer,
        )
        peers = self._peers = Peers(
            peer_client_id(config.node_id, world.incarnation.id),
            settings.inter_broker_listener_name,
            metadata,
            PeerNetwork(world.streams, clock),
        )
        self._transaction_tasks = TaskSupervisor(world.fatal)
        self._producer_ids = ProducerIdAllocator(self._allocate_producer_ids, self._transaction_tasks)
        self.transactions = TransactionCoordinatorService(
            TransactionConfig.from_properties(config.values),
            CoordinatorTopic(TRANSACTION_STATE_TOPIC, table, lifecycle, clock, workers),
            MarkerSender(config.node_id, metadata, peers, self._write_markers, self._transaction_tasks),
            self._producer_ids,
            clock,
            world.fatal,
            lease=lifecycle,
            on_growth=world.exclude_from_gc,
            turns=budget,
            workers=workers,
        )
        verifier = CoordinatorVerifier(
            config.node_id, metadata, peers, self.transactions.add_partitions, self._transaction_tasks
        )
        reports = ControllerReports(config.node_id, lifecycle, channel)
        data = self.data = DataPlane(
            settings,
            table,
            {OFFSETS_TOPIC: self.groups, TRANSACTION_STATE_TOPIC: self.transactions},
            metadata,
            lifecycle,
            alter_partition=reports,
            lost_replicas=reports,
            directories=reports,
            disk=world.disk,
            clock=clock,
            rng=world.new_rng(),
            streams=world.streams,
            workers=workers,
            on_fatal=world.fatal,
            log_dirs=log_dirs,
            on_log_dir_failure=self._driver.handle_failed_log_dir,
            on_growth=world.exclude_from_gc,
            observer=world.partition_observer,
        )

        # The publishers of metadata, and the handlers of clients' requests.
        self._followers = _Followers(metadata, data.publisher, (self.groups, self.transactions))
        dynamic_settings = _DynamicSettings(config, listeners, self.groups, self.transactions)
        self.refused_values = dynamic_settings.refused
        self.publishers: tuple[MetadataPublisher, ...] = (
            metadata,
            self._driver,
            dynamic_settings,
            self._followers,
        )
        self.fetch_sessions = FetchSessionCache(
            settings.max_incremental_fetch_session_cache_slots, world.new_rng()
        )
        markers = PartitionMarkers(data.replicas, data.wakeups, clock)
        services = self._services = BrokerServices(
            config=settings,
            clock=clock,
            metadata=metadata,
            lifecycle=lifecycle,
            controller=channel,
            creations=TopicCreations(settings, channel, data.tasks),
            replicas=data.replicas,
            logs=data.logs,
            moves=data.moves,
            isr_proposals=data.isr_proposals,
            fetch_sessions=self.fetch_sessions,
            wakeups=data.wakeups,
            tasks=data.tasks,
            slices=Slices(budget, "requests that wait"),
            workers=workers,
            groups=self.groups,
            transactions=self.transactions,
            markers=markers,
            verifier=verifier,
            offsets_transactions=self.groups,
            server_properties=config.given,
            loggers=world.loggers,
            kraft_version=lambda: quorum.voters.kraft_version,
        )
        self._requests = RequestServer(
            services,
            make_apis(),
            budget,
            world.fatal,
            data.replicas.hold_until_open,
            lambda: lifecycle.is_fenced,
        )
        self._serving = world.around_requests(self._requests)
        self.measured: MeasuredRequests | None = None
        if world.now_us is not None:
            slow_ms = config.integer("pykraft.slow.request.log.ms")
            self._serving = self.measured = MeasuredRequests(
                self._serving, self._requests.served, world.now_us, slow_ms
            )

    async def start(self) -> None:
        """Register and serve; returns once the controller has unfenced this broker.

        :meth:`stop` undoes everything that was started, in reverse order, also after a failed start.
        """
        running, driver, data = self._running, self._driver, self.data
        running.callback(self._log_threads.shutdown, wait=False)
        await data.logs.start()
        running.push_async_callback(self._stop_logs)
        running.push_async_callback(self.listeners.stop)
        running.push_async_callback(data.stop)
        running.push_async_callback(self._requests.close)
        await driver.register(data.logs.previous_broker_epoch)
        running.push_async_callback(self._heartbeats.close)
        self._heartbeats.start(driver.run(), "broker-lifecycle")
        await driver.caught_up.wait()  # now the image includes the broker's registration
        await self.groups.start()
        running.push_async_callback(self.groups.stop)
        running.callback(self._peers.close)
        running.push_async_callback(self._transaction_tasks.close)
        self.transactions.start()
        running.push_async_callback(self.transactions.stop)
        self._followers.begin()
        running.callback(self._followers.end)
        reconciling = data.tasks.start(data.reconciler.run(), "log-reconciler")
        running.callback(reconciling.cancel)  # otherwise it would elect coordinators that have been stopped
        await data.worklist.idle.wait()
        await data.reconciler.set_aside_strays()
        data.maintenance.start()
        driver.set_ready()
        await driver.running.wait()
        self._producer_ids.fetch_block()
        running.push_async_callback(self.listeners.stop_listening)
        await self.listeners.start_serving(self._serving, data.replicas.check_unsent)

    async def hand_over(self) -> None:
        """Controlled shutdown: the controller moves this broker's leaderships to others.

        Without it the next process waits until this process's session has expired.
        """
        config, lifecycle = self._config, self.lifecycle
        if not (lifecycle.is_registered and self._hands_over):
            return
        if lifecycle.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return  # requested before: done, or abandoned
        serves = lifecycle.state is BrokerState.RUNNING
        await self._driver.shut_down(
            config.controlled_shutdown_timeout_ms if serves else config.heartbeat_interval_ms
        )

    def refuse_to_hand_over(self) -> None:
        """:meth:`stop` will only close."""
        self._hands_over = False

    async def stop(self) -> None:
        """Hand over and close; safe after a start that failed half-way."""
        async with self._running:
            await self.hand_over()

    async def _stop_logs(self) -> None:
        await self.data.stop_logs(self.lifecycle.epoch)

    def applied_offset(self) -> int:
        """The offset up to which this broker has applied the metadata: no replica is still in an older role.

        -1 while the loader has not published anything yet: what it has read may include this incarnation.
        """
        if self.metadata.image is EMPTY_IMAGE:
            return -1
        applied = self.data.publisher.unapplied_since
        offset = self._quorum.delivered_offset - 1 if applied is None else applied
        self._last_applied_offset = max(self._last_applied_offset, offset)
        return self._last_applied_offset

    async def _write_markers(self, ends: write_txn_markers.Ends) -> write_txn_markers.Codes:
        return await write_txn_markers.write_markers(self._services, ends)

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        response = await self._channel.call(
            "AllocateProducerIds",
            pb.AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.lifecycle.epoch),
            pb.AllocateProducerIdsResponse.FromString,
            _PRODUCER_IDS_TIMEOUT_MS,
        )
        return response.start, response.length


class _DynamicSettings:
    """A publisher: what was changed while the broker runs reaches its listeners (limits on connections) and
    its groups. ``refused``: the values that are ignored.
    """

    def __init__(
        self,
        config: ServerConfig,
        listeners: ClientListeners,
        groups: GroupCoordinatorService,
        transactions: TransactionCoordinatorService,
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._config = config
        self._listeners = listeners
        self.refused = RefusedValues()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        node_id = self._config.node_id
        here = {resource for resource in delta.changed_configs if concerns_broker(resource, node_id)}
        others = {it for it in delta.changed_configs if it[0] != ConfigResourceType.BROKER}
        self.refused.note(image, here | others)
        if here:
            values = with_dynamic_values(image, node_id, self._config.values)
            self._apply(ListenerLimits, values, self._listeners.limit_connections)
            self._apply(GroupConfig, values, self._groups.on_config)
            self._apply(TransactionConfig, values, self._transactions.on_config)

    @staticmethod
    def _apply(kind: type[S], values: Mapping[str, ConfigValue], apply: Callable[[S], None]) -> None:
        """Settings that contradict each other, as another version may have accepted them or another broker's
        properties may allow, leave those of before in force.
        """
        try:
            settings = kind.from_properties(values)
        except ConfigError as error:
            logger.warning("The settings that are in force stay, since the new ones are refused: %s", error)
        else:
            apply(settings)


class _Follower(Protocol):
    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None: ...


class _Followers:
    """A publisher: replicas and coordinators follow the metadata once the image has caught up."""

    def __init__(
        self, metadata: MetadataCache, replicas: ReplicaPublisher, coordinators: Sequence[_Follower]
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._coordinators = coordinators
        self._follow = False

    def begin(self) -> None:
        """Follow from now on, starting with everything so far."""
        self._follow = True
        delta = build_full_delta(self._metadata.image)
        if not delta.is_empty:
            self.publish(delta, delta.new)

    def end(self) -> None:
        """The broker stops: roles no longer change."""
        self._follow = False

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._follow:
            self._replicas.publish(delta, image)
            for coordinator in self._coordinators:
                coordinator.on_metadata(delta, image)
