"""Requests from replaced or duplicate processes of a broker, and requests that arrive late.

They send requests to the controllers as brokers do, from a machine of their own. A replaced process continues
with its old epoch, a process registers under an id that is in use, and a request to be fenced or a leader's
request for another ISR arrives late or twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.runtime.simulated.virtual_loop import VirtualClock

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.requests import Operation
    from pykraft.jepsen_like.simulation.cluster.world import World
    from pykraft.runtime.simulated.processes import SimProcess

_TIMEOUT_MS = 8000


class Strangers:
    """``operations``: their operations with weights. ``note`` is called with every granted request."""

    def __init__(self, world: World, process: SimProcess, note: Callable[[str, str, int], None]) -> None:
        self._world = world
        self._rng = random.Random(f"strangers {world.seed}")
        self._transport = world.rpc.transport(process)
        self._clock = VirtualClock(world.loop)
        self._note = note
        self.operations: tuple[tuple[int, Operation], ...] = (
            (2, self._allocate),
            (1, self._send_an_old_epoch),
            (1, self._register_a_duplicate),
            (1, self._request_fence_late),
            (2, self._propose_late),
            (2, self._propose_the_dead),
        )

    async def _call(self, node: SimNode, request: Any, timeout_ms: int = _TIMEOUT_MS) -> Any:
        """Ask the controller that the node believes to be the active one."""
        quorum = node.parts.quorum
        leader = (lambda: None) if quorum is None else quorum.leader_address
        channel = ControllerChannel(self._transport, leader, self._clock, self._rng)
        method = type(request).__name__.removesuffix("Request")
        return await channel.call(method, request, getattr(pb, f"{method}Response").FromString, timeout_ms)

    async def _allocate(self, node: SimNode) -> None:
        """Request producer ids as the broker's current process would."""
        lifecycle = node.parts.lifecycle
        if lifecycle is None:
            return
        request = pb.AllocateProducerIdsRequest(broker_id=node.id, broker_epoch=lifecycle.epoch)
        response = await self._call(node, request, 10_000)
        self._note("take producer ids from", str(response.start), 0)
        self._world.checker.block_allocated(response.start, response.length)

    async def _send_an_old_epoch(self, node: SimNode) -> None:
        """A process that was replaced without knowing it sends a request with its old epoch."""
        victim = self._rng.choice(self._world.brokers).id
        epochs = self._world.checker.model.epochs_of(victim)
        if len(epochs) < 2:
            return
        epoch = self._rng.choice(epochs[:-1])
        if self._rng.random() < 0.5:
            request = pb.BrokerHeartbeatRequest(
                broker_id=victim, broker_epoch=epoch, current_metadata_offset=node.image.offset
            )
            await self._call(node, request)
            self._world.checker.stale_accepted(victim, epoch, "a heartbeat")
        else:
            await self._call(node, pb.AllocateProducerIdsRequest(broker_id=victim, broker_epoch=epoch))
            self._world.checker.stale_accepted(victim, epoch, "a request for producer ids")

    async def _register_a_duplicate(self, node: SimNode) -> None:
        """A second process registers under the id of a broker, possibly of one that is alive.

        Not for a broker whose machine is down: that one must be fenced, not replaced.
        """
        victim = self._rng.choice(self._world.brokers)
        if not victim.may_start:
            return
        known = node.image.brokers.get(victim.id)
        request = pb.RegisterBrokerRequest(
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
            # The secrets that a copy of the victim's directory may hold, and those that are public: none
            # of them proves that the live process is dead.
            dead_incarnation_secrets=[
                b"" if known is None else known.incarnation_id,
                *victim.incarnation.dead_secrets,
            ],
        )
        response = await self._call(node, request)
        self._note("register a duplicate of broker", str(victim.id), 0)
        assert self._world.checker.model.registrations[response.broker_epoch][0] == victim.id

    async def _request_fence_late(self, node: SimNode) -> None:
        """A request to be fenced, which a broker sent before it was unfenced, arrives only now.

        Not from a broker that is dead, cut off or starved: each of these requests renews the session, and the
        broker would never be fenced.
        """
        sender = self._rng.choice(self._world.brokers)
        victim = sender.id
        known = self._world.checker.model.brokers.get(victim)
        silent = not sender.runs or any(victim == from_id for from_id, _ in self._world.links.cuts)
        if known is None or known.fenced or silent or victim in self._world.starved:
            return
        request = pb.BrokerHeartbeatRequest(
            broker_id=victim,
            broker_epoch=known.epoch,
            current_metadata_offset=known.last_change_offset - 1,
            want_fence=True,
        )
        await self._call(node, request)
        self._note("late request to be fenced of broker", str(victim), 0)

    async def _propose_late(self, node: SimNode) -> None:
        """A leader's request for another ISR arrives again, or late, when much may have changed."""
        if not self._world.watch.proposals:
            return
        broker_id, request = self._rng.choice(self._world.watch.proposals)
        await asyncio.sleep(3 * self._rng.random())
        await self._call(self._world.nodes[broker_id], request)
        self._note("late request for another ISR of broker", str(broker_id), 0)

    async def _propose_the_dead(self, node: SimNode) -> None:
        """A leader proposes an ISR with a replica's earlier incarnation, which fetched last."""
        model, rng = self._world.checker.model, self._rng
        found = [
            (topic_id, index, partition, replica)
            for topic_id, topic in model.topics.items()
            for index, partition in enumerate(topic.partitions)
            for replica in partition.replicas
            if replica != partition.leader in model.brokers and len(model.epochs_of(replica)) > 1
        ]
        if not found:
            return
        topic_id, index, partition, replica = rng.choice(found)
        epochs = {id: model.brokers[id].epoch for id in partition.isr}
        epochs[replica] = rng.choice(model.epochs_of(replica)[:-1])
        asked = pb.AlterPartitionPartition(
            index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=[pb.IsrMember(broker_id=id, broker_epoch=epoch) for id, epoch in epochs.items()],
        )
        request = pb.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=model.brokers[partition.leader].epoch,
            topics=[pb.AlterPartitionTopic(topic_id=topic_id, partitions=[asked])],
        )
        response = await self._call(node, request)
        if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self._world.checker.dead_admitted(replica, epochs[replica])
