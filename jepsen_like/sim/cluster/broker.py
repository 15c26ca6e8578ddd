"""The broker of a simulated node: the product's registration, heartbeats, lease, image and channel.

Joined as :mod:`pykraft.node.broker_node` joins them, without sockets and partition logs. In their place
stands :class:`ClientDoor`, for clients that try to be served: it asks the checks of the product's data plane.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from pykraft.broker.config import BrokerConfig, ListenerConfig
from pykraft.broker.membership.alter_partition import ControllerAlterPartition
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.broker.metadata_cache import MetadataCache
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.requests import IsrMember, PartitionIsrChange
from pykraft.metadata_log.features import SUPPORTED_FEATURES
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.incarnations import incarnation_id_of
from pykraft.metadata_log.loader import MetadataLoader, MetadataPublisher
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.node.broker_node import _Publisher
from pykraft.runtime.tasks import TaskSupervisor

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.world import SimNode
    from pykraft.metadata_log.delta import MetadataDelta
    from pykraft.runtime.clock import Clock
    from pykraft.runtime.rpc import RpcTransport


class ClientDoor:
    """What a client meets first: the refusals of :class:`ReplicaManager`, on this broker's lease."""

    def __init__(self, lease: BrokerLifecycle, clock: Clock) -> None:
        self.lease = lease
        self.clock = clock

    def serves(self) -> bool:
        """Whether any request of a client is answered."""
        return _passes(ReplicaManager.refuse_if_fenced, self)

    def takes_unreplicated_writes(self) -> bool:
        """Whether a write with acks 0 or 1 is accepted."""
        return self.serves() and _passes(ReplicaManager.refuse_past_lease, self)


def _passes(check: Any, door: ClientDoor) -> bool:
    try:
        check(door)
    except KafkaError as error:
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False
    return True


class DeltaMirror:
    """The topics as somebody knows them who is told of changes only, as every publisher of a broker is."""

    def __init__(self) -> None:
        self.was_told = False
        self.topics: dict[Uuid, Any] = {}
        self.brokers: dict[int, Any] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.was_told = True
        for topic in delta.iter_deleted_topics():
            del self.topics[topic.id]
        for topic in delta.iter_changed_topics():
            known = self.topics.get(topic.id)
            partitions = list(known) if known is not None else []
            for index in sorted(delta.changed_partitions[topic.id]):
                if index < len(partitions):
                    partitions[index] = topic.partitions[index]
                else:
                    partitions.append(topic.partitions[index])
            self.topics[topic.id] = tuple(partitions)
        for broker_id in delta.iter_changed_brokers():
            self.brokers[broker_id] = image.brokers.get(broker_id)

    def agrees_with(self, image: MetadataImage) -> bool:
        """Whether this is ``image``; also while nothing has been told, before the node has caught up."""
        if not self.was_told:
            return True
        topics = {topic_id: topic.partitions for topic_id, topic in image.topics_by_id.items()}
        brokers = {id: broker for id, broker in self.brokers.items() if broker is not None}
        return self.topics == topics and brokers == dict(image.brokers.items())


class SimBroker:
    """``publishers`` are what the node's loader feeds."""

    def __init__(self, node: SimNode, rng: random.Random, stopped_in_order_at_epoch: int | None) -> None:
        self._node = node
        self._rng = rng
        self._stopped_in_order_at_epoch = stopped_in_order_at_epoch
        self.lifecycle = BrokerLifecycle()
        self.cache = MetadataCache(node.id, node.world.cluster_id, EMPTY_IMAGE)
        self._publisher = _Publisher(self.cache, self.lifecycle, self._metadata_changed)
        self.mirror = DeltaMirror()
        self.publishers: list[MetadataPublisher] = [self._publisher, self.mirror]
        self.door = ClientDoor(self.lifecycle, node.clock)
        self.secret = rng.randbytes(16)
        self.incarnation_id = incarnation_id_of(self.secret)
        self.tasks = TaskSupervisor(node.exited)
        self.channel: ControllerChannel
        self.loader: MetadataLoader
        self.driver: LifecycleDriver | None = None

    async def start(self, transport: RpcTransport, quorum: Any, loader: MetadataLoader) -> None:
        """Register and serve; returns once the controller has unfenced this broker."""
        self.loader = loader
        node, world = self._node, self._node.world
        self.channel = ControllerChannel(
            transport, quorum.leader_address, node.clock, self._rng, self.incarnation_id
        )
        config = BrokerConfig(
            node_id=node.id,
            cluster_id=world.cluster_id,
            log_dirs=("/data",),
            listeners=(ListenerConfig("PLAINTEXT", "sim", node.id, "sim", node.id),),
            rack=f"r{node.id % 3}",
            heartbeat_interval_ms=world.options.heartbeat_ms,
        )
        self.driver = LifecycleDriver(
            config,
            self.lifecycle,
            self.channel,
            node.clock,
            incarnation_id=self.incarnation_id,
            endpoints=lambda: (Endpoint("PLAINTEXT", "sim", node.id),),
            log_dir_ids=(node.directory_id,),
            metadata_offset=lambda: self.loader.offset,
            features=SUPPORTED_FEATURES,
            stopped_in_order_at_epoch=self._stopped_in_order_at_epoch,
            dead_incarnation_secrets=tuple(node.dead_secrets),
        )
        self.tasks.start(self._meet_clients(), "clients")
        await self.driver.register()
        self.tasks.start(self.driver.run(), "broker-lifecycle")
        await self.driver.caught_up.wait()
        self.lifecycle.set_ready()
        await self.driver.running.wait()
        for _ in range(2):
            self.tasks.start(self._propose_isr_changes(), "isr")

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.changed_brokers and self.driver is not None:
            self.driver.handle_brokers(image.brokers)

    @property
    def is_serving(self) -> bool:
        return self.lifecycle.state is BrokerState.RUNNING and self.door.serves()

    @property
    def lease_end_ms(self) -> int | None:
        """On the node's monotonic clock; None without a lease."""
        return self.lifecycle._lease_end_ms

    async def hand_over(self) -> None:
        """As :meth:`pykraft.node.broker_node.BrokerNode.hand_over`."""
        if self.driver is not None and self.lifecycle.is_registered:
            serves = self.lifecycle.state is BrokerState.RUNNING
            await self.driver.shut_down(15_000 if serves else self._node.world.options.heartbeat_ms)

    async def stop(self) -> None:
        await self.hand_over()
        self._publisher.end()
        await self.tasks.close()

    async def _meet_clients(self) -> None:
        checker = self._node.world.checker
        while True:
            checker.client_met(self._node, self)
            await asyncio.sleep(0.02 + 0.2 * self._rng.random())

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """As :class:`pykraft.node.broker_node.BrokerNode` does it."""
        response = await self.channel.call(
            "AllocateProducerIds",
            pb.AllocateProducerIdsRequest(broker_id=self._node.id, broker_epoch=self.lifecycle.epoch),
            pb.AllocateProducerIdsResponse.FromString,
            10_000,
        )
        return response.start, response.length

    def _epoch_of_some_process(self, broker_id: int, newest: int) -> int:
        """A follower's last fetch may have been that of a process that is gone."""
        epochs = self._node.world.checker.model.epochs_of(broker_id)
        return self._rng.choice(epochs) if epochs and self._rng.random() < 0.15 else newest

    async def _propose_isr_changes(self) -> None:
        """Followers of this broker's partitions fall behind and catch up at random."""
        port = ControllerAlterPartition(self._node.id, self.lifecycle, self.channel)
        while not self._node.world.quiet:
            mending = self._node.world.mending
            gap_ms = 20 if mending else self._node.world.options.isr_gap_ms
            await asyncio.sleep(gap_ms * 2 * self._rng.random() / 1000)
            image = self.loader.image
            led = [
                (topic, index, partition)
                for topic in sorted(image.topics_by_id.values(), key=lambda topic: topic.id)
                for index, partition in enumerate(topic.partitions)
                if partition.leader == self._node.id
                and not (mending and set(partition.isr) == set(partition.replicas))
            ]
            if not led:
                continue
            asked = self._rng.sample(led, min(len(led), self._rng.choice((1, 1, 2, 5))))
            changes = [self._propose_isr(*one, mending=mending) for one in asked]
            if not mending and self._rng.random() < 0.5:
                # What a leader knows of its followers may be old.
                await asyncio.sleep(3 * self._rng.random())
            for change in changes:
                self._node.world.checker.model.note_proposal(
                    change.topic_id,
                    change.index,
                    change.partition_epoch,
                    [member.broker_id for member in change.new_isr],
                )
            try:
                answers = await port.alter_partitions(changes)
            except KafkaError:
                continue
            for (topic, index, partition), change, answer in zip(asked, changes, answers, strict=True):
                if answer.error is ErrorCode.NONE:
                    proposed = {member.broker_id: member.broker_epoch for member in change.new_isr}
                    self._node.world.checker.isr_answered(topic.id, index, partition, proposed, answer)

    def _propose_isr(
        self, topic: TopicImage, index: int, partition: PartitionRegistration, *, mending: bool
    ) -> PartitionIsrChange:
        """An ISR at random; of all replicas that are known, where the cluster is to mend."""
        members = [IsrMember(self._node.id, self.lifecycle.epoch)]
        for replica in partition.replicas:
            broker = self.loader.image.brokers.get(replica)
            if replica != self._node.id and broker is not None and (mending or self._rng.random() < 0.7):
                epoch = broker.epoch if mending else self._epoch_of_some_process(replica, broker.epoch)
                members.append(IsrMember(replica, epoch))
        return PartitionIsrChange(
            topic.id, index, partition.leader_epoch, partition.partition_epoch, tuple(members)
        )
