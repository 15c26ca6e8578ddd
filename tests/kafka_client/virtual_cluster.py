"""A scripted cluster for clients with concurrent tasks: asyncio, in virtual time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.network import Channel, Event
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.kafka_client.scripted import Later, Outcome, ScriptedBroker, ScriptedCluster
from tests.narrowing import as_type

T = TypeVar("T")


SILENCE = Later(None)
"""No answer is sent, whether or not the request was carried out."""
NO_ANSWER = Later(None, -1)
"""The request has no answer, like Produce with acks=0."""


def _set(future: asyncio.Future[bytes], frame: bytes) -> None:
    if not future.done():
        future.set_result(frame)


class VirtualNetwork(AsyncioNetwork):
    """Scripted brokers on the running loop. A handler may answer with :class:`Later`.

    ``slow``: brokers by id with a latency of their own. ``write_ms``: how long a write takes; its frame is
    on the way meanwhile. ``at_await`` is called where the client lets others run: before, and after.
    """

    def __init__(self, brokers: dict[Address, ScriptedBroker], latency_ms: int = 1) -> None:
        self.brokers = brokers
        self.latency_ms = latency_ms
        self.slow: dict[int, int] = {}
        self.write_ms = 0
        self.at_await: Callable[[], object] = lambda: None
        self.channels: list[VirtualChannel] = []

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        await self.sleep(self.latency_ms)
        broker = self.brokers.get(address)
        if broker is None or not broker.up:
            raise ConnectionRefusedError("connection refused")
        channel = VirtualChannel(self, broker)
        self.channels.append(channel)
        return channel

    async def sleep(self, duration_ms: int) -> None:
        self.at_await()
        await super().sleep(duration_ms)
        self.at_await()

    async def wait(self, event: Event, deadline_ms: int | None = None) -> None:
        self.at_await()
        await super().wait(event, deadline_ms)
        self.at_await()

    def cut(self, *, arrives: bool) -> None:
        """Every connection breaks. ``arrives``: what is under way is still carried out."""
        for channel in self.channels:
            channel.cut(arrives=arrives)

    @property
    def connections(self) -> int:
        """How many the client has not closed."""
        return sum(not channel.closed for channel in self.channels)


class VirtualChannel:
    """Requests reach the broker in order, ``latency_ms`` after they were sent, and so do answers."""

    def __init__(self, network: VirtualNetwork, broker: ScriptedBroker) -> None:
        self.network = network
        self.broker = broker
        self.answers: deque[asyncio.Future[bytes]] = deque()
        self.requests: deque[bytes] = deque()
        self.closed = False
        self._arrived = asyncio.Event()
        self._broken: Exception | None = None
        self._is_deaf = False

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        if self._broken or self.closed or not self.broker.up:
            raise ConnectionResetError("the peer is gone")
        self.requests.append(frame)
        self._later(self._latency_ms, lambda: self._carry_out(self.requests.popleft()))
        self.network.at_await()
        if self.network.write_ms:
            await asyncio.sleep(self.network.write_ms / 1000)
            if self._broken or self.closed:
                raise ConnectionResetError("cut off while it was written")
        self.network.at_await()

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        self.network.at_await()
        frame = await self._next_answer(deadline_ms)
        self.network.at_await()
        return frame

    async def _next_answer(self, deadline_ms: int) -> memoryview:
        async with asyncio.timeout_at(deadline_ms / 1000):
            while not self.answers:
                if self._broken or self.closed:
                    raise self._broken or ConnectionResetError("closed")
                self._arrived.clear()
                await self._arrived.wait()
            frame = await asyncio.shield(self.answers[0])
        self.answers.popleft()
        return memoryview(frame)

    def close(self) -> None:
        self.closed = True
        self._break(ConnectionResetError("closed"))

    def cut(self, *, arrives: bool) -> None:
        self._is_deaf = not arrives
        self._break(ConnectionResetError("cut"))

    @property
    def _latency_ms(self) -> int:
        return self.network.slow.get(self.broker.node_id, self.network.latency_ms)

    def _carry_out(self, frame: bytes) -> None:
        """Requests in flight arrive even if the client has closed the channel meanwhile."""
        if self._is_deaf:
            return
        response = self.broker.answer(frame)
        if response == NO_ANSWER:
            return
        delay_ms = self._latency_ms
        answer: Outcome | Awaitable[Outcome] = response
        if isinstance(response, Later):
            delay_ms, answer = response.delay_ms, response.answer
        place: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.answers.append(place)
        self._arrived.set()
        if isinstance(answer, Awaitable):
            task = asyncio.ensure_future(answer)

            def pass_on(done: asyncio.Future[Outcome]) -> None:
                if not done.cancelled():
                    self._answer(place, done.result(), delay_ms)

            task.add_done_callback(pass_on)
        else:
            self._answer(place, answer, delay_ms)

    def _answer(self, place: asyncio.Future[bytes], response: Outcome, delay_ms: int) -> None:
        if isinstance(response, Exception):
            self._later(delay_ms, lambda: self._break(response))
        elif response is not None:
            self._later(delay_ms, partial(_set, place, as_type(response, bytes)))

    def _break(self, error: Exception) -> None:
        self._broken = error
        for future in self.answers:
            if not future.done():
                future.set_exception(error)
                future.exception()
        self._arrived.set()

    def _later(self, delay_ms: int, work: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1000, work)


@asynccontextmanager
async def nothing_unseen() -> AsyncIterator[None]:
    """A background task that fails fails the test, and none outlives it."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    try:
        yield
    finally:
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    assert not unseen, unseen


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, for whoever plays many."""

    async def main() -> T:
        async with nothing_unseen():
            return await work

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def network_of(cluster: ScriptedCluster, latency_ms: int = 1) -> VirtualNetwork:
    return VirtualNetwork(cluster.network.brokers, latency_ms)
