"""Three real controllers on a faulty network, in virtual time: a lease ends before its broker is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.jepsen_like.sim.memory_disk import MemoryDisk
from pykraft.jepsen_like.sim.virtual_loop import SimExecutor, VirtualClock, VirtualLoop
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.log import Log, LogConfig
from pykraft.metadata_log.controller import rpc as controller_rpc
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.features import SUPPORTED_FEATURES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import Endpoint
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import PendingCall, RpcFailure, RpcHandler
from tests.narrowing import as_type
from tests.rpc_handlers import RpcHandlers

CONTROLLERS = (1, 2, 3)
BROKER = 9
SESSION_MS = 2400
"""Short compared with the time in which a leader notices that it is alone: this endangers leases."""


class Network:
    """Messages take some time, occasionally a long time; links may be cut in either direction."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.handlers: dict[tuple[int, str], RpcHandler] = {}
        self.cut: set[tuple[int, int]] = set()
        self.calls: set[asyncio.Future[Any]] = set()

    def delay_s(self) -> float:
        return self.rng.choice((0.001, 0.003, 0.02, 0.02, 0.3 if self.rng.random() < 0.1 else 0.005))

    async def carry(
        self, source: int, target: int, method: str, payload: bytes, reply: asyncio.Future[bytes | RpcFailure]
    ) -> None:
        await asyncio.sleep(self.delay_s())
        handler = self.handlers.get((target, method))
        if handler is None or (source, target) in self.cut:
            return
        answer = await handler(payload)
        await asyncio.sleep(self.delay_s())
        if (target, source) not in self.cut and not reply.done():
            reply.set_result(answer)


class Link:
    """The transport of one node."""

    def __init__(self, network: Network, source: int) -> None:
        self.network, self.source = network, source

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[bytes | RpcFailure] = loop.create_future()
        reply.add_done_callback(lambda done: None if done.cancelled() else on_reply(done.result()))

        def expire() -> None:
            if not reply.done():
                reply.set_result(RpcFailure("DEADLINE_EXCEEDED"))

        loop.call_later(deadline_ms / 1000, expire)
        call = asyncio.ensure_future(self.network.carry(self.source, to.port, method, payload, reply))
        self.network.calls.add(call)
        call.add_done_callback(self.network.calls.discard)
        return reply

    async def close(self) -> None: ...


class Door(RpcHandlers):
    """The server side of one node."""

    def __init__(self, network: Network, node_id: int) -> None:
        super().__init__()
        self.network, self.node_id = network, node_id

    def register(self, method: str, handler: RpcHandler) -> None:
        self.network.handlers[self.node_id, method] = handler


class Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = VirtualClock(as_type(asyncio.get_running_loop(), VirtualLoop))
        self.network = Network(self.rng)
        self.fatal: list[BaseException] = []
        self.drivers: dict[int, ControllerDriver] = {}
        self.quorums: dict[int, QuorumNode] = {}
        keys = {id: ReplicaKey(id, Uuid(bytes([id]) * 16)) for id in CONTROLLERS}
        voters = VoterSet([Voter(keys[id], Address("c", id)) for id in CONTROLLERS])
        for id in CONTROLLERS:
            disk, directory = MemoryDisk(), "/d/__cluster_metadata-0"
            format_log(disk, directory, now_ms=0)
            quorum = self.quorums[id] = QuorumNode(
                config=QuorumConfig(),
                cluster_id="c",
                local=keys[id],
                voters=voters,
                log=Log.open(disk, directory, LogConfig(), now_ms=0),
                state_store=QuorumStateStore(disk, directory),
                transport=Link(self.network, id),
                clock=self.clock,
                rng=Random(seed * 10 + id),
                on_fatal=self.fatal.append,
                flush_executor=SimExecutor(self.rng, 0),  # type: ignore[arg-type]
            )
            driver = self.drivers[id] = ControllerDriver(
                node_id=id,
                config=ControllerConfig(session_timeout_ms=SESSION_MS),
                cluster_id="c",
                clock=self.clock,
                rng=Random(seed),
                bootstrap_features={},
                quorum=quorum,
                on_fatal=self.fatal.append,
            )
            door = Door(self.network, id)
            quorum.register(door)
            controller_rpc.register(door, driver)
        self.believed_leader: Address | None = None
        self.lifecycle = BrokerLifecycle()
        self.broker = LifecycleDriver(
            BrokerConfig(
                node_id=BROKER, cluster_id="c", log_dirs=("/d",), listeners=(), heartbeat_interval_ms=200
            ),
            self.lifecycle,
            ControllerChannel(
                Link(self.network, BROKER), lambda: self.believed_leader, self.clock, Random(seed)
            ),
            self.clock,
            incarnation_id=Uuid(b"i" * 16),
            endpoints=(Endpoint("PLAINTEXT", "h", 9092),),
            log_dir_ids=(Uuid(b"d" * 16),),
            metadata_offset=self.catch_up,
            features=SUPPORTED_FEATURES,
        )

    def catch_up(self) -> int:
        """Give the broker everything that any controller knows to be committed."""
        image = max((d.committed_image for d in self.drivers.values()), key=lambda image: image.offset)
        self.lifecycle.handle_registration_change(image.brokers.get(BROKER))
        return image.offset

    def active(self) -> int | None:
        """The controller of the highest epoch, if any is active."""
        claims = [(self.quorums[id].leader.epoch, id) for id, driver in self.drivers.items() if driver.active]
        return max(claims)[1] if claims else None

    async def start(self) -> None:
        for id in CONTROLLERS:
            await self.quorums[id].start([MetadataLoader(controller=self.drivers[id])])
            await self.drivers[id].start()
        while self.active() is None:
            await asyncio.sleep(0.01)
        self.look_for_the_leader()
        await self.broker.register()
        self.running = asyncio.ensure_future(self.broker.run())
        self.lifecycle.set_ready()
        await self.broker.running.wait()

    async def stop(self) -> None:
        self.running.cancel()
        for id in CONTROLLERS:
            await self.drivers[id].stop()
        await asyncio.gather(*(quorum.stop() for quorum in self.quorums.values()))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def look_for_the_leader(self) -> None:
        leader = self.active()
        self.believed_leader = None if leader is None else Address("c", leader)

    def is_fenced_somewhere(self) -> bool:
        """Whether any controller knows that the fencing of the broker is committed."""
        images = [driver.committed_image for driver in self.drivers.values()]
        return any(BROKER in image.brokers and image.brokers[BROKER].fenced for image in images)

    def check_lease(self) -> None:
        if not self.lifecycle.is_fenced and self.lifecycle.lease_valid(self.clock.monotonic_ms()):
            for driver in self.drivers.values():
                broker = driver.committed_image.brokers.get(BROKER)
                stands = broker is None or broker.epoch != self.lifecycle.epoch or not broker.fenced
                assert stands, "the broker has been fenced while its lease was valid"


@pytest.mark.parametrize("seed", range(12))
def test_lease_of_a_broker_that_stays_with_a_deposed_controller_ends_before_it_is_fenced(seed: int) -> None:
    """The leader loses contact with the other voters, but not with the broker, which keeps following it."""

    async def scenario() -> None:
        cluster = Cluster(seed)
        await cluster.start()
        fenced = 0
        for _ in range(4):
            await asyncio.sleep(cluster.rng.uniform(1, 5))
            leader = cluster.active()
            if leader is None:
                continue
            others = [id for id in CONTROLLERS if id != leader]
            ways = cluster.rng.choice(("out", "in", "both"))
            for other in others:
                cluster.network.cut |= {(leader, other)} if ways != "in" else set()
                cluster.network.cut |= {(other, leader)} if ways != "out" else set()
            seen = False
            for _ in range(500):
                await asyncio.sleep(0.02)
                cluster.check_lease()
                if not seen and cluster.is_fenced_somewhere():
                    seen = True
                    fenced += 1
            cluster.network.cut.clear()
            cluster.look_for_the_leader()
            for _ in range(250):
                await asyncio.sleep(0.02)
                cluster.look_for_the_leader()
        assert fenced, "no broker was fenced: the scenario tests nothing"
        assert cluster.active() is not None and not cluster.lifecycle.is_fenced
        assert cluster.fatal == []
        await cluster.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())
