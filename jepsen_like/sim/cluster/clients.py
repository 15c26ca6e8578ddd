"""Clients of a simulated cluster: they create, delete and alter through any broker, and tell the checks.

Each request runs in the process of the broker that was asked, as it does in the product; when that dies, the
client never learns what came of it. Some clients are not what they seem: late twins of a broker that speak
with an old epoch, or register under an id that is taken.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pykraft.jepsen_like.sim.cluster.admins import TOPICS, Admins
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pykraft.kafka_protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import ConfigResourceType

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.broker import SimBroker
    from pykraft.jepsen_like.sim.cluster.world import SimNode, World

TIMEOUT_MS = 8000
CLIENTS = 3

M = TypeVar("M", bound=Message)
Operation = Callable[["SimNode", "SimBroker"], Awaitable[None]]


class Clients:
    """Three clients that ask for one thing after the other, and sometimes for two at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"clients {world.seed}")
        self._active = True
        self._next_value = 0
        self.confirmed = 0
        self.admins = Admins(world, self)
        operations: tuple[tuple[int, Operation], ...] = (
            (5, self._create),
            (3, self._delete),
            (3, self._alter_config),
            (2, self._create_partitions),
            (2, self._allocate),
            (1, self._speak_with_an_old_epoch),
            (1, self._register_a_twin),
            (1, self._wish_late),
            *self.admins.operations,
        )
        self._operations = [operation for weight, operation in operations for _ in range(weight)]

    def start(self) -> None:
        for _ in range(CLIENTS):
            self._turn()

    def stop(self) -> None:
        self._active = False

    def _turn(self) -> None:
        if not self._active:
            return
        self._world.later(self._world.options.client_gap_ms * 2 * self._rng.random(), self._turn)
        operation = self._rng.choice(self._operations)
        node = self._rng.choice(self._world.brokers)
        self.ask(node, operation)

    def change_voters(self) -> None:
        """An admin does so now, through some broker."""
        if self._active:
            self.ask(self._rng.choice(self._world.brokers), self.admins.change_voters)

    def ask(self, node: SimNode, operation: Operation) -> None:
        """Have ``operation`` run in the node's process, if its broker can be reached."""
        broker, process = node.broker, node.process
        if process is None or not process.alive or broker is None or broker.driver is None:
            return

        async def run() -> None:
            try:
                await operation(node, broker)
            except KafkaError as error:
                self._world.note(f"refused {node.id} {error.code.name}")

        self._world.loop.create_task(run(), context=process.context).add_done_callback(
            self._ended, context=self._world.outside
        )

    def _ended(self, task: object) -> None:
        error = None if task.cancelled() else task.exception()  # type: ignore[attr-defined]
        if isinstance(error, Exception):
            self._world.failed(error)

    async def forward(
        self, broker: SimBroker, api: ApiKey, version: int, request: Message, response_class: type[M]
    ) -> M:
        body = await broker.channel.forward(
            api,
            version,
            request.encode(version),
            principal="User:sim",
            client_id="sim",
            client_address="sim",
            listener="PLAINTEXT",
            timeout_ms=TIMEOUT_MS,
        )
        return response_class.decode(body, version)

    # --- what they ask for ------------------------------------------------------------------------------

    async def _create(self, node: SimNode, broker: SimBroker) -> None:
        await self.create(node, broker, self._rng.choice(TOPICS))

    async def create(self, node: SimNode, broker: SimBroker, name: str) -> None:
        factor = self._rng.choice((1, 2, 2, 3))
        topic = CreatableTopic(
            name=name, num_partitions=self._rng.choice((1, 2, 3)), replication_factor=factor
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = await self.forward(broker, ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
        for result in response.topics:
            self.note("create", name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.topic_created(result.topic_id, result.name)

    async def _delete(self, node: SimNode, broker: SimBroker) -> None:
        name = self._rng.choice(TOPICS)
        topic_id = broker.loader.image.topic_ids.get(name)
        state = DeleteTopicState(name=name)
        if topic_id is not None and self._rng.random() < 0.5:
            state = DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        response = await self.forward(broker, ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
        for result in response.responses:
            self.note("delete", name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.topic_deleted(result.topic_id, result.name)

    async def _alter_config(self, node: SimNode, broker: SimBroker) -> None:
        name = self._rng.choice(TOPICS)
        self._next_value += 1
        value = None if self._rng.random() < 0.2 else str(1_000_000 + self._next_value)
        config = AlterableConfig(name="retention.ms", config_operation=1 if value is None else 0, value=value)
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC), resource_name=name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await self.forward(
            broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponse
        )
        for result in response.responses:
            self.note("alter", name, result.error_code)
            if result.error_code == ErrorCode.NONE and value is not None:
                self._world.checker.config_altered(result.resource_type, name, "retention.ms", value)

    async def _create_partitions(self, node: SimNode, broker: SimBroker) -> None:
        topic = CreatePartitionsTopic(
            name=self._rng.choice(TOPICS), count=self._rng.choice((2, 3, 4)), assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = await self.forward(broker, ApiKey.CREATE_PARTITIONS, 3, request, CreatePartitionsResponse)
        for result in response.results:
            self.note("partitions", topic.name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.partitions_created(topic.name, topic.count)

    async def _allocate(self, node: SimNode, broker: SimBroker) -> None:
        start, length = await broker.allocate_producer_ids()
        self.note("producer ids", str(start), 0)
        self._world.checker.block_allocated(start, length)

    # --- who is not what it seems -----------------------------------------------------------------------

    async def _speak_with_an_old_epoch(self, node: SimNode, broker: SimBroker) -> None:
        """A process that has been replaced and does not know it."""
        victim = self._rng.choice(self._world.brokers).id
        epochs = [
            epoch
            for epoch, (broker_id, _) in self._world.checker.model.registrations.items()
            if broker_id == victim
        ]
        if len(epochs) < 2:
            return
        epoch = self._rng.choice(epochs[:-1])
        if self._rng.random() < 0.5:
            await broker.channel.call(
                "BrokerHeartbeat",
                pb.BrokerHeartbeatRequest(
                    broker_id=victim, broker_epoch=epoch, current_metadata_offset=broker.loader.offset
                ),
                pb.BrokerHeartbeatResponse.FromString,
                TIMEOUT_MS,
            )
            self._world.checker.stale_accepted(victim, epoch, "a heartbeat")
        else:
            await broker.channel.call(
                "AllocateProducerIds",
                pb.AllocateProducerIdsRequest(broker_id=victim, broker_epoch=epoch),
                pb.AllocateProducerIdsResponse.FromString,
                TIMEOUT_MS,
            )
            self._world.checker.stale_accepted(victim, epoch, "a request for producer ids")

    async def _register_a_twin(self, node: SimNode, broker: SimBroker) -> None:
        """Somebody starts a second process under the id of a broker, perhaps of one that lives.

        Not of one whose machine is away: that one is to be fenced, not replaced.
        """
        victim = self._rng.choice(self._world.brokers)
        if not victim.may_start:
            return
        known = broker.loader.image.brokers.get(victim.id)
        response = await broker.channel.call(
            "RegisterBroker",
            pb.RegisterBrokerRequest(
                cluster_id=self._world.cluster_id,
                broker_id=victim.id,
                incarnation_id=Uuid(self._rng.randbytes(16)),
                endpoints=[pb.Endpoint(name="PLAINTEXT", host="sim", port=1, security_protocol="PLAINTEXT")],
                log_dirs=[victim.directory_id],
                features=[
                    pb.Feature(name=one.name, min_level=one.min_level, max_level=one.max_level)
                    for one in SUPPORTED_RANGES
                ],
                previous_broker_epoch=-1,
                # What a copy of the victim's directory may know, and what everybody does: nothing that proves
                # the process dead that lives now.
                dead_incarnation_secrets=[
                    b"" if known is None else known.incarnation_id,
                    *victim.dead_secrets,
                ],
            ),
            pb.RegisterBrokerResponse.FromString,
            TIMEOUT_MS,
        )
        self.note("twin", str(victim.id), 0)
        assert self._world.checker.model.registrations[response.broker_epoch][0] == victim.id

    async def _wish_late(self, node: SimNode, broker: SimBroker) -> None:
        """What a broker sent before it was unfenced, a wish to stay fenced, arrives only now.

        Not from one that is dead, cut off or starved: every wish is a word from it, and it would never be
        fenced.
        """
        sender = self._rng.choice(self._world.brokers)
        victim = sender.id
        known = self._world.checker.model.brokers.get(victim)
        silent = not sender.runs or any(victim == from_id for from_id, _ in self._world.links.cuts)
        if known is None or known.fenced or silent or victim in self._world.starved:
            return
        await broker.channel.call(
            "BrokerHeartbeat",
            pb.BrokerHeartbeatRequest(
                broker_id=victim,
                broker_epoch=known.epoch,
                current_metadata_offset=known.last_change_offset - 1,
                want_fence=True,
            ),
            pb.BrokerHeartbeatResponse.FromString,
            TIMEOUT_MS,
        )
        self.note("late wish", str(victim), 0)

    def note(self, what: str, name: str, error: int) -> None:
        self.confirmed += error == ErrorCode.NONE
        self._world.note(f"{what} {name} {error}")
