"""The broker of one node: its parts, made and joined, brought up and taken down in order.

Up: logs, replicas and coordinator, then registration; the client listeners open only when the controller has
unfenced the broker, so that until then a client is refused at once and asks another. Down: leaderships are
handed over, then listeners, coordinator, fetchers, replicas and logs stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.membership.alter_partition import ControllerAlterPartition, ControllerLostReplicas
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.broker.metadata_cache import MetadataCache
from pykraft.broker.producer_ids import ProducerIdAllocator
from pykraft.broker.replicas.maintenance import LogMaintenance
from pykraft.broker.replicas.offsets_writer import OFFSETS_TOPIC, OffsetsTopicWriter
from pykraft.broker.replicas.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.broker.serving.request_server import RequestServer
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.metadata_log.broker_configs import concerns_broker, with_dynamic_values
from pykraft.metadata_log.delta import MetadataDelta, build_full_delta
from pykraft.metadata_log.features import SUPPORTED_FEATURES
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.loader import MetadataLoader, MetadataPublisher
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.node.broker_settings import broker_config
from pykraft.node.config import ServerConfig
from pykraft.node.format import NodeIdentity
from pykraft.node.world import World
from pykraft.quorum.driver import QuorumNode
from pykraft.runtime.rpc import RpcTransport
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.runtime.tcp import StreamRuntime

_PRODUCER_IDS_TIMEOUT_MS = 10_000
_SETTLE_CHECK_S = 0.002
_LOG_THREADS = 8
"""Disks work on several requests at a time; most of these threads wait for one."""


class BrokerNode:
    """One broker. ``publisher`` is what the node's loader feeds; it exists before the quorum does."""

    def __init__(self, config: ServerConfig, identity: NodeIdentity, world: World) -> None:
        self._server_config = config
        self._config = broker_config(config, identity.cluster_id)
        self._directory_ids = identity.directory_ids
        self._world = world
        self._log_executor = world.executor(_LOG_THREADS, "logs")
        self._tasks = TaskSupervisor(world.fatal)
        self._lifecycle = BrokerLifecycle()
        self._metadata = MetadataCache(config.node_id, identity.cluster_id, EMPTY_IMAGE)
        self._publisher = _Publisher(self._metadata, self._lifecycle, self._metadata_changed)
        self._listeners: list[KafkaListener] = []
        self._driver: LifecycleDriver | None = None
        self._requests: RequestServer[BrokerServices] | None = None
        self._groups: GroupCoordinatorService | None = None
        self._fetchers: ReplicaFetchers | None = None
        self._replicas: ReplicaManager | None = None
        self._last_applied_offset = -1
        self._logs: LogManager | None = None

    @property
    def publisher(self) -> MetadataPublisher:
        return self._publisher

    async def start(self, transport: RpcTransport, quorum: QuorumNode, loader: MetadataLoader) -> None:
        """Register and serve; returns once the controller has unfenced this broker."""
        config, world = self._config, self._world
        clock, chance, runtime = world.clock, world.chance(), world.streams
        channel = ControllerChannel(transport, quorum.leader_address, clock, chance, world.incarnation.id)
        self._logs = LogManager(
            world.disk,
            config.log_dirs,
            build_log_config({}, config.topic_defaults),
            clock,
            self._fault,
            self._log_executor,
        )
        await self._logs.start()
        self._replicas = ReplicaManager(
            config,
            self._logs,
            self._metadata,
            self._lifecycle,
            ControllerAlterPartition(config.node_id, self._lifecycle, channel),
            clock,
            chance,
            self._fault,
            lost_replicas=ControllerLostReplicas(config.node_id, self._lifecycle, channel),
        )
        self._replicas.wakeups.share(runtime.budget)
        runtime.on_unreadable = self._replicas.check_unsent
        self._fetchers = ReplicaFetchers(self._replicas, runtime, config.inter_broker_listener_name)
        self._replicas.set_fetchers(self._fetchers)
        self._groups = GroupCoordinatorService(
            GroupConfig.from_properties(self._server_config.values),
            OffsetsTopicWriter(self._replicas),
            clock,
            chance,
            lease=self._lifecycle,
            on_fault=self._fault,
            on_growth=world.settle_memory,
            turns=runtime.budget,
        )
        self._join_groups_to_replicas(self._replicas, self._groups)
        services = BrokerServices(
            config=config,
            clock=clock,
            metadata=self._metadata,
            lifecycle=self._lifecycle,
            controller=channel,
            replicas=self._replicas,
            groups=self._groups,
            producer_ids=ProducerIdAllocator(lambda: self._allocate_producer_ids(channel)),
            server_properties=self._server_config.given,
            loggers=world.loggers,
            kraft_version=lambda: quorum.voters.kraft_version,
        )
        self._requests = RequestServer(
            services,
            make_apis(),
            runtime.budget,
            self._replicas.hold_until_open,
            lambda: self._lifecycle.is_fenced,
        )
        await self._bind_listeners(runtime)
        self._driver = LifecycleDriver(
            config,
            self._lifecycle,
            channel,
            clock,
            incarnation_id=world.incarnation.id,
            dead_incarnation_secrets=world.incarnation.dead_secrets,
            endpoints=self.endpoints,
            log_dir_ids=tuple(self._directory_ids[path] for path in config.log_dirs),
            metadata_offset=lambda: self._applied_offset(loader),
            features=SUPPORTED_FEATURES,
            stopped_in_order_at_epoch=self._logs.previous_broker_epoch,
        )
        await self._driver.register()
        self._tasks.start(self._driver.run(), "broker-lifecycle")
        await self._driver.caught_up.wait()
        await self._open_replicas(self._replicas, self._groups, self._logs)
        self._lifecycle.set_ready()
        await self._driver.running.wait()
        for listener in self._listeners:
            await listener.start_serving(self._requests)

    async def _open_replicas(
        self, replicas: ReplicaManager, groups: GroupCoordinatorService, logs: LogManager
    ) -> None:
        """Open what the image assigns to this broker, now that the image is not older than the broker."""
        await groups.start()
        self._publisher.begin(replicas, groups)
        await replicas.start()
        while not replicas.is_settled:
            await asyncio.sleep(_SETTLE_CHECK_S)
        await replicas.set_aside_strays()
        LogMaintenance(replicas, logs).start()

    def _join_groups_to_replicas(self, replicas: ReplicaManager, groups: GroupCoordinatorService) -> None:
        def leadership(topic: str, index: int, leader_epoch: int | None) -> None:
            if topic != OFFSETS_TOPIC:
                return
            if leader_epoch is None:
                groups.on_resigned(index)
            else:
                groups.on_elected(index, leader_epoch)

        def high_watermark(topic: str, index: int, offset: int) -> None:
            groups.on_high_watermark(index, offset)

        replicas.add_leadership_listener(leadership)
        replicas.add_high_watermark_listener(high_watermark, OFFSETS_TOPIC)

    async def _bind_listeners(self, runtime: StreamRuntime) -> None:
        limits = ListenerLimits.from_properties(self._server_config.values)
        for listener in self._config.listeners:
            bound = KafkaListener(runtime, listener.host or None, listener.port, listener.name, limits)
            await bound.bind()
            self._listeners.append(bound)
        self._limit_connections(self._metadata.image)

    def _applied_offset(self, loader: MetadataLoader) -> int:
        """The offset up to which this broker acts on the metadata: no replica is still in an older role."""
        applied = None if self._replicas is None else self._replicas.unapplied_since
        offset = loader.offset if applied is None else applied
        self._last_applied_offset = max(self._last_applied_offset, offset)
        return self._last_applied_offset

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.changed_brokers and self._driver is not None:
            self._driver.handle_brokers(image.brokers)
        if any(concerns_broker(resource, self._config.node_id) for resource in delta.changed_configs):
            self._limit_connections(image)

    def _limit_connections(self, image: MetadataImage) -> None:
        values = with_dynamic_values(image, self._config.node_id, self._server_config.values)
        limits = ListenerLimits.from_properties(values)
        for listener in self._listeners:
            listener.limit_connections(limits.max_connections, limits.max_connections_per_ip)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients are told that this broker is; ports are those bound."""
        return tuple(
            configured.endpoint(bound.port)
            for configured, bound in zip(self._config.listeners, self._listeners, strict=True)
        )

    async def _allocate_producer_ids(self, channel: ControllerChannel) -> tuple[int, int]:
        response = await channel.call(
            "AllocateProducerIds",
            pb.AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self._lifecycle.epoch),
            pb.AllocateProducerIdsResponse.FromString,
            _PRODUCER_IDS_TIMEOUT_MS,
        )
        return response.start, response.length

    def _fault(self, what: str, error: BaseException) -> None:
        self._world.fatal(error)

    async def hand_over(self) -> None:
        """Have the controller move leaderships to others and let this broker go.

        Without it the next process waits until the session here has lapsed.
        """
        config = self._config
        if self._driver is None or not (self._lifecycle.is_registered and config.controlled_shutdown_enable):
            return
        if self._lifecycle.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return  # asked for before: done, or given up
        serves = self._lifecycle.state is BrokerState.RUNNING
        await self._driver.shut_down(
            config.controlled_shutdown_timeout_ms if serves else config.heartbeat_interval_ms
        )

    async def stop(self) -> None:
        """Hand over and close; safe after a start that failed half-way."""
        await self.hand_over()
        for listener in self._listeners:
            await listener.stop_listening()
        self._publisher.end()
        await self._tasks.close()
        if self._groups is not None:
            await self._groups.stop()
        if self._requests is not None:
            await self._requests.close()
        if self._fetchers is not None:
            await self._fetchers.stop()
        if self._replicas is not None:
            await self._replicas.stop()
        for listener in self._listeners:
            await listener.stop()
        if self._logs is not None and self._replicas is not None:
            # A start that was broken off has not opened every replica: keep what their checkpoint said.
            high_watermarks = {key: opened.high_watermark for key, opened in self._logs.logs.items()}
            for partition in self._replicas.partitions():
                high_watermarks[partition.topic, partition.index] = partition.high_watermark
            epoch = self._lifecycle.epoch
            if epoch < 0:  # never registered: the logs are still as the previous process left them
                epoch = -1 if self._logs.previous_broker_epoch is None else self._logs.previous_broker_epoch
            await self._logs.stop(epoch, high_watermarks)
        self._log_executor.shutdown(wait=False)


class _Publisher:
    """Passes images on in a fixed order: metadata cache, lifecycle, replica manager, group coordinator."""

    def __init__(
        self,
        metadata: MetadataCache,
        lifecycle: BrokerLifecycle,
        on_change: Callable[[MetadataDelta, MetadataImage], None],
    ) -> None:
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._on_change = on_change
        self._rest: tuple[ReplicaManager, GroupCoordinatorService] | None = None

    def begin(self, replicas: ReplicaManager, groups: GroupCoordinatorService) -> None:
        """From now on the others are told too, beginning with all that happened so far."""
        self._rest = (replicas, groups)
        delta = build_full_delta(self._metadata.image)
        if not delta.is_empty:
            self._publish_rest(delta, delta.new)

    def end(self) -> None:
        """The broker is going down: roles no longer change."""
        self._rest = None

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._metadata.publish(delta, image)
        node_id = self._metadata.node_id
        if node_id in delta.changed_brokers:
            self._lifecycle.handle_registration_change(image.brokers.get(node_id))
        self._on_change(delta, image)
        self._publish_rest(delta, image)

    def _publish_rest(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._rest is not None:
            replicas, groups = self._rest
            replicas.publish(delta, image)
            groups.on_metadata(delta, image)
