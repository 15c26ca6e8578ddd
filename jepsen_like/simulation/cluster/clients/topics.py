"""Clients: they create, delete and alter topics through any broker, and report to the checks.

They are processes on machines of their own, and connect to the brokers' listeners as any client does. They
never learn the outcome of a request that is lost with its connection. Requests that no client may send come
from :mod:`.strangers`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pykraft.broker.peers.identity import peer_client_id
from pykraft.jepsen_like.simulation.cluster.clients.admins import Admins
from pykraft.jepsen_like.simulation.cluster.clients.directories import RATE, Directories
from pykraft.jepsen_like.simulation.cluster.clients.settings_admin import SettingsAdmin
from pykraft.jepsen_like.simulation.cluster.clients.strangers import Strangers
from pykraft.jepsen_like.simulation.cluster.clients.throttles import LIMITS, Throttles
from pykraft.jepsen_like.simulation.cluster.options import TOPICS, TRANSACTIONS
from pykraft.jepsen_like.simulation.cluster.requests import TIMEOUT_MS, ClientRequests, Operation
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pykraft.kafka_protocol.messages.transactions import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

CLIENTS = 3
CLEARED: Final = frozenset({RATE}) | LIMITS
"""The settings that are removed when all faults have ended."""


class Clients:
    """Three clients that send one request after the other, and sometimes two at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"clients {world.seed}")
        self._active = True
        self._next_value = 0
        self.requests = ClientRequests(world)
        world.transaction_faults.send = self._send_markers
        self.settings = SettingsAdmin(world, self.requests, CLEARED)
        self.admins = Admins(world, self.requests, self.settings)
        self.directories = Directories(world, self.requests, self.settings)
        self.throttles = Throttles(world, self.settings)
        moves_logs = world.options.log_dirs > 1 and world.options.moves_logs
        # Clients beside transactions do little.
        moves = 40 if world.workload == TRANSACTIONS else 6
        self.strangers = Strangers(world, world.start_client("strangers").process, self.requests.note)
        operations: tuple[tuple[int, Operation], ...] = (
            (5, self._create),
            (3, self._delete),
            (3, self._alter_config),
            (2, self._create_partitions),
            (moves if moves_logs else 0, self.directories.move_log),
            (1 if moves_logs else 0, self.directories.limit_moves),
            (4 if world.options.throttles else 0, self.throttles.throttle),
            *self.admins.operations,
            *self.strangers.operations,
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
        self.requests.begin(node, operation)

    def change_voters(self) -> None:
        """An administrator changes the voters now, through some broker."""
        if self._active:
            self.requests.begin(self._rng.choice(self._world.brokers), self.admins.change_voters)

    # --- what they request ------------------------------------------------------------------------------

    def _send_markers(self, node_id: int, request: WriteTxnMarkersRequest) -> None:
        """As a coordinator's request that arrives once more."""

        async def repeat_markers(node: SimNode) -> None:
            broker = node.image.brokers.get(node.id)
            if broker is not None:
                sender = peer_client_id(broker.id, broker.incarnation_id)
                await self.requests.call(node, request, sender)

        self.requests.begin(self._world.nodes[node_id], repeat_markers)

    async def _create(self, node: SimNode) -> None:
        await self.create(node, self._rng.choice(TOPICS))

    async def create(self, node: SimNode, name: str) -> None:
        factor = self._rng.choice((1, 2, 2, 3))
        topic = CreatableTopic(
            name=name, num_partitions=self._rng.choice((1, 2, 3)), replication_factor=factor
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = await self.requests.call(node, request)
        for result in response.topics:
            self.requests.note("create", name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.topic_created(result.topic_id, result.name)

    async def _delete(self, node: SimNode) -> None:
        name = self._rng.choice(TOPICS)
        topic_id = node.image.topic_ids.get(name)
        state = DeleteTopicState(name=name)
        if topic_id is not None and self._rng.random() < 0.5:
            state = DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        response = await self.requests.call(node, request)
        for result in response.responses:
            self.requests.note("delete", name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.topic_deleted(result.topic_id, result.name)

    async def _alter_config(self, node: SimNode) -> None:
        name = self._rng.choice(TOPICS)
        self._next_value += 1
        value = None if self._rng.random() < 0.2 else str(1_000_000 + self._next_value)
        await self.settings.set(node, ConfigResourceType.TOPIC, name, "retention.ms", value)

    async def _create_partitions(self, node: SimNode) -> None:
        topic = CreatePartitionsTopic(
            name=self._rng.choice(TOPICS), count=self._rng.choice((2, 3, 4)), assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = await self.requests.call(node, request)
        for result in response.results:
            self.requests.note(f"{topic.count} partitions for", topic.name, result.error_code)
            if result.error_code == ErrorCode.NONE:
                self._world.checker.partitions_created(topic.name, topic.count)
