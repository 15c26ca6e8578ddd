"""Machines with shipped nodes in virtual time, the network between them, and the checks.

Everything is drawn from the seed. Faults are in :mod:`.faults`, clients in :mod:`.clients`, and the
invariants in :mod:`.checks`.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from pykraft.jepsen_like.simulation.cluster import probes  # noqa: F401  # puts them in place
from pykraft.jepsen_like.simulation.cluster.checks.commits import ClusterChecker
from pykraft.jepsen_like.simulation.cluster.checks.voters import VoterWatch
from pykraft.jepsen_like.simulation.cluster.node import SimNode
from pykraft.jepsen_like.simulation.cluster.options import draw_options
from pykraft.jepsen_like.simulation.cluster.settings import CLIENT_PORT
from pykraft.jepsen_like.simulation.cluster.transaction_faults import TransactionFaults
from pykraft.jepsen_like.simulation.cluster.watch import Watch
from pykraft.jepsen_like.simulation.schedule import describe
from pykraft.jepsen_like.simulation.story import Lead, Story, StoryFault
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.processes import SimProcess
from pykraft.runtime.simulated.rpc import RpcNetwork
from pykraft.runtime.simulated.streams import NetworkLoop, address_of

FIRST_CLIENT = 100
"""The first number of the clients' machines."""

CLUSTER_ID = uuid_to_str(Uuid(b"simulated cluste"))


def make_loop(seed: int) -> NetworkLoop:
    """The loop of one schedule, and its links."""
    return NetworkLoop(Links(random.Random(f"links {seed}")), random.Random(f"streams {seed}"))


class ClientProcess:
    """A process on a machine of its own that is not a node.

    ``asyncio`` and :class:`pykraft.kafka_client.aio.AsyncioNetwork` work in what it runs; it can be killed
    and paused as a node can.
    """

    def __init__(self, world: World, process: SimProcess) -> None:
        self._world = world
        self.process = process

    @property
    def host(self) -> int:
        """The number of its machine, for links and cuts."""
        return self.process.host

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start work in the process. An error of the work fails the schedule."""
        task = self._world.loop.create_task(work, context=self.process.context)
        task.add_done_callback(self._ended, context=self._world.outside)
        return task

    def kill(self) -> None:
        """End the process: its connections are closed, and none of its callbacks runs again."""
        self.process.kill()
        self._world.loop.streams.end_process(self.process)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._world.failed(error)


class World:
    """All nodes, the network, the time, and the checks."""

    def __init__(
        self, seed: int, loop: NetworkLoop, story: Story | None = None, workload: str | None = None
    ) -> None:
        self.workload = workload
        self.seed = seed
        self.loop = loop
        self.story = story
        self.trace = sha256()
        self.events = 0
        self.outside = contextvars.copy_context()
        self.options = draw_options(seed, workload)
        self.cluster_id = CLUSTER_ID
        self.links = loop.streams.links
        self.links.max_delay_ms = self.options.max_delay_ms
        loop.streams.on_event = self._carried
        self.rpc = RpcNetwork(loop, self.links, self._called, self.failed)
        self.error: BaseException | None = None
        self.injected: dict[str, int] = {}
        self.processes: list[SimProcess] = []
        self.voters_stay = False
        """Whether administrators change no voters."""
        ids = sorted({*self.options.controllers, *self.options.brokers})
        self.nodes: dict[int, SimNode] = {}
        self.checker = ClusterChecker(self)
        self.voter_watch = VoterWatch(self, self.checker)
        self.watch = Watch(self.checker, self.voter_watch)
        self.nodes.update({node_id: SimNode(self, self.watch, node_id) for node_id in ids})
        first = [self.nodes[node_id] for node_id in self.options.first_voters]
        in_log = self.options.voters_in_log
        self.voters = VoterSet(
            [Voter(node.key if in_log else ReplicaKey(node.id), node.address) for node in first]
        )
        for node in self.nodes.values():
            node.format(first_voter=in_log and node in first)
        self._clients = 0
        rng = random.Random(f"markers {seed}")
        self.transaction_faults = TransactionFaults(self, self.checker.model, rng)

    @property
    def controllers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def active(self) -> list[SimNode]:
        """Nodes that believe to be the active controller."""
        return [
            node
            for node in self.controllers
            if node.alive and node.parts.controller is not None and node.parts.controller.active
        ]

    @property
    def starved(self) -> list[int]:
        """Nodes whose fetches of the metadata log are lost, while everything else that they send passes."""
        return self.rpc.starved

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """The addresses of the brokers for clients."""
        return tuple(Address(address_of(node.id), CLIENT_PORT) for node in self.brokers)

    def start_client(self, name: str) -> ClientProcess:
        """A process on a machine of its own, which only a fault aimed at it affects."""
        self._clients += 1
        process = SimProcess(name, host=FIRST_CLIENT + self._clients)
        self.processes.append(process)
        return ClientProcess(self, process)

    @property
    def now_us(self) -> int:
        """Microseconds of virtual time."""
        return int(self.loop.now_s * 1_000_000)

    def log_event(self, who: str | int, what: str) -> None:
        """A line of the story. ``who``: a node's id, or another part of the world."""
        self.mark(f"{who} {what}")
        if self.story is not None:
            self.story.log(self.now_us, who if isinstance(who, str) else f"node {who}", what)

    def mark(self, what: str) -> None:
        """Add to the trace, which is equal for equal schedules."""
        self.trace.update(f"{self.loop.now_s:.6f} {what}".encode())

    def later(self, after_ms: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback`` later, outside any process."""
        self.loop.call_later(after_ms / 1000, callback, *args, context=self.outside)

    def count(self, what: str) -> None:
        """Count a fault that was injected."""
        self.injected[what] = self.injected.get(what, 0) + 1

    def count_other(self, what: str, who: str = "") -> None:
        """Count a fault that the plan does not have."""
        self.count(what)
        if self.story is not None:
            self.story.others.append(StoryFault(what, who, self.now_us, 0, self.now_us))

    def lead(self, partition: str | None, leader: int) -> None:
        """Note who leads a partition, or None: the controllers, from now on."""
        if self.story is not None:
            self.story.leads.append(Lead(self.now_us, partition, leader))

    def _called(self, name: str, sender: int, receiver: int, checksum: int) -> None:
        self.events += 1
        self.mark(f"{name} {sender}>{receiver} {checksum}")
        if self.story is not None and self.story.has_messages:
            self.story.log(self.now_us, f"node {receiver}", f"receives {name} from node {sender}")

    def _carried(self, kind: str, sender: int, receiver: int, size_bytes: int) -> None:
        """Messages of connections are in the trace only; the story would be too long."""
        self.events += 1
        self.trace.update(
            b"%d %s %d %d %d" % (self.loop.now_s * 1e6, kind.encode(), sender, receiver, size_bytes)
        )

    def failed(self, error: BaseException) -> None:
        """End the schedule with an error: a broken invariant or a bug."""
        if self.error is None:
            self.log_event("checks", f"find a fault: {describe(error)}")
            self.error = error
