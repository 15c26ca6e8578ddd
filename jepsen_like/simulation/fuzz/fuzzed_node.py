"""One whole node, broker and controller, in virtual time and on a disk in memory, and a client of it.

The node is the shipped one. Its budget of a turn is measured in processor time, so that a machine that is
busy with other work changes nothing.
"""

import random
from collections.abc import Mapping
from time import thread_time_ns
from typing import Any

from pykraft.jepsen_like.simulation.fuzz.connection import FuzzConnection
from pykraft.jepsen_like.simulation.fuzz.metered_loop import MeteredLoop
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import load_server_config
from pykraft.node.format import format_directories
from pykraft.node.incarnation import Incarnation, draw_uuid
from pykraft.node.node import Node
from pykraft.node.world import World
from pykraft.runtime.memory import keep_out_of_collection
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.processes import ProcessClock, ProcessKilledError, SimProcess
from pykraft.runtime.simulated.rpc import RpcNetwork
from pykraft.runtime.simulated.streams import address_of
from pykraft.runtime.simulated.virtual_loop import SimExecutor

HOST, CLIENT_HOST = 1, 100
BROKER, CONTROLLER = 9092, 9094
"""The ports of the two listeners for clients."""
LOG_DIRS = ("/data", "/data-2")


class FuzzedNode:
    """``failure``: the fault with which the node ended, or would have."""

    def __init__(self, seed: int, properties: Mapping[str, str] | None = None) -> None:
        self.loop = MeteredLoop(seed)
        self.failure: BaseException | None = None
        self._rng = random.Random(f"node {seed}")
        self._outside = SimProcess("client", host=CLIENT_HOST)
        self._rpc = RpcNetwork(self.loop, self.loop.streams.links, lambda *_: None, self._failed)
        self.process = self.loop.metered = SimProcess("node", host=HOST)
        self.disk = MemoryDisk(recorded_calls=0)
        address = address_of(HOST)
        values = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": (
                f"PLAINTEXT://{address}:{BROKER},CONTROLLER://{address}:9093,CLIENTS://{address}:{CONTROLLER}"
            ),
            "controller.listener.names": "CONTROLLER,CLIENTS",
            "controller.quorum.voters": f"1@{address}:9093",
            "log.dirs": ",".join(LOG_DIRS),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | dict(properties or {})
        self._config = load_server_config("".join(f"{name}={value}\n" for name, value in values.items()))
        clock = ProcessClock(self.loop, start_ms=1_000_000)
        ids = iter(Uuid(bytes([number]) * 16) for number in range(1, 10))
        cluster_id = uuid_to_str(Uuid(b"a fuzzed cluster"))
        format_directories(
            self.disk, self._config, cluster_id, BOOTSTRAP_FEATURES, ids.__next__, clock.wall_ms()
        )
        self._clock = clock
        self.node: Node | None = None

    def run(self, work: Any) -> Any:
        """The result of a coroutine of the client."""

        async def main() -> Any:
            return await self.loop.create_task(work, context=self._outside.context)

        return self.loop.run_until_complete(main())

    async def start(self) -> None:
        """Returns once the broker serves clients."""
        await self.loop.create_task(self._boot(), context=self.process.context)

    async def _boot(self) -> None:
        world = World(
            disk=self.disk,
            clock=self._clock,
            new_rng=lambda: random.Random(self._rng.getrandbits(64)),
            executor=lambda threads, _: SimExecutor(random.Random(0), 0, threads),  # type: ignore[arg-type,return-value]
            rpc_transport=lambda: self._rpc.transport(self.process),
            rpc_server=lambda: self._rpc.server(self.process),
            streams=StreamRuntime(self.loop, now_us=lambda: thread_time_ns() // 1000),
            fatal=self._fatal,
            exclude_from_gc=keep_out_of_collection,
            incarnation=Incarnation(draw_uuid(self._rng.randbytes)),
            loggers=_Loggers(),
        )
        self.node = Node(self._config, world)
        await self.node.start()

    def _failed(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def _fatal(self, error: BaseException) -> None:
        self._failed(error)
        raise ProcessKilledError

    def close(self) -> None:
        """End the process; nothing of it runs any more."""
        self.process.kill()
        self.loop.streams.end_process(self.process)
        self.loop.close()

    async def connect(self, port: int) -> FuzzConnection:
        _, protocol = await self.loop.create_connection(FuzzConnection, address_of(HOST), port)
        assert isinstance(protocol, FuzzConnection)
        return protocol


class _Loggers:
    """Loggers that nothing writes to: clients may set their levels."""

    def __init__(self) -> None:
        self._levels = {"root": "INFO", **{f"pykraft.part{number}": "INFO" for number in range(200)}}

    def levels(self) -> Mapping[str, str]:
        return self._levels

    def set_level(self, name: str, level: str | None) -> None:
        self._levels[name] = level or "INFO"
