"""One broker's lifecycle driver and the controllers it talks to, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypedDict, Unpack

from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import BrokerRegistration
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import PendingCall, RpcFailure
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from tests.narrowing import as_type

ONE, TWO = Address("controller", 1), Address("controller", 2)
SESSION_MS = 9000


Answer = Callable[[Any], Any]


class Controllers:
    """The transport, and the scripted controllers behind it. An address without a script never answers."""

    def __init__(self) -> None:
        self.leader: Address | None = ONE
        self.scripts: dict[Address, dict[str, Answer]] = {}
        self.seen: list[tuple[int, Address, str, Any]] = []
        self.latency_ms = 1
        self.waiting: set[asyncio.Task[None]] = set()
        """Calls that are not answered and not given up."""

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        loop = asyncio.get_running_loop()
        name = method.rpartition("/")[2]
        request = getattr(pb, f"{name}Request").FromString(payload)
        self.seen.append((round(loop.time() * 1000), to, name, request))

        async def answer() -> None:
            await asyncio.sleep(self.latency_ms / 1000)
            script = self.scripts.get(to, {}).get(name)
            response = None if script is None else script(request)
            if response is None:
                await asyncio.sleep(max(0, deadline_ms - self.latency_ms) / 1000)
                response = RpcFailure("DEADLINE_EXCEEDED")
            on_reply(response if isinstance(response, RpcFailure) else response.SerializeToString())

        call = loop.create_task(answer())
        self.waiting.add(call)
        call.add_done_callback(self.waiting.discard)
        return call

    async def close(self) -> None: ...

    def of(self, name: str) -> list[Any]:
        return [request for _, _, method, request in self.seen if method == name]


class ConfigFields(TypedDict, total=False):
    """What tests set of :class:`BrokerConfig`."""

    heartbeat_interval_ms: int


class WorldOptions(ConfigFields, total=False):
    stopped_in_order_at_epoch: int | None


class World:
    def __init__(self, stopped_in_order_at_epoch: int | None = None, **config: Unpack[ConfigFields]) -> None:
        self._stopped_in_order_at_epoch = stopped_in_order_at_epoch
        self.controllers = Controllers()
        self.lifecycle = BrokerLifecycle()
        self.metadata_offset = 0
        self.metadata_end_offset = 0
        self.cordoned: tuple[Uuid, ...] = ()
        self.unfenced = BrokerRegistration(7, 10, Uuid(b"i" * 16), (), fenced=False)
        self.clock = VirtualClock(as_type(asyncio.get_running_loop(), VirtualLoop))
        self.channel = ControllerChannel(
            self.controllers,
            lambda: self.controllers.leader,
            self.clock,
            random.Random(1),
            b"incarnation",
            lambda: self.metadata_end_offset,
        )
        self.driver = LifecycleDriver(
            BrokerConfig(node_id=7, cluster_id="c", log_dirs=("/d",), listeners=(), **config),
            self.lifecycle,
            self.channel,
            self.clock,
            incarnation_id=Uuid(b"i" * 16),
            endpoints=(Endpoint("PLAINTEXT", "h", 9092),),
            log_dir_ids=lambda: (Uuid(b"d" * 16),),
            cordoned_log_dir_ids=lambda: self.cordoned,
            metadata_offset=lambda: self.metadata_offset,
            features={"metadata.version": (7, 30)},
        )
        self.beat: Answer = lambda request: pb.BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= 10,
            is_fenced=request.want_fence or request.current_metadata_offset < 10,
            lease_ms=SESSION_MS,
        )
        self.registered: Answer = lambda request: pb.RegisterBrokerResponse(broker_epoch=10)
        self.controllers.scripts[ONE] = {
            "RegisterBroker": lambda request: self.registered(request),
            "BrokerHeartbeat": lambda request: self.beat(request),
        }

    async def start(self) -> asyncio.Task[None]:
        """Register and become unfenced; returns the task that continues to send heartbeats."""
        await self.driver.register(self._stopped_in_order_at_epoch)
        self.metadata_offset = 10
        self.lifecycle.handle_registration_change(self.unfenced)
        running = asyncio.ensure_future(self.driver.run())
        await self.driver.caught_up.wait()
        self.lifecycle.set_ready()
        await self.driver.running.wait()
        return running


@asynccontextmanager
async def running_world(**options: Unpack[WorldOptions]) -> AsyncIterator[World]:
    yield World(**options)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
