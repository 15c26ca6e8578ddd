"""A scripted cluster for clients with concurrent tasks: asyncio, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from pykraft.jepsen_like.sim.virtual_loop import VirtualLoop
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.network import Channel
from pykraft.runtime.address import Address
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
    """Scripted brokers on the running loop. A handler may answer with :class:`Later`."""

    def __init__(self, brokers: dict[Address, ScriptedBroker], latency_ms: int = 1) -> None:
        self.brokers = brokers
        self.latency_ms = latency_ms
        self.channels: list[VirtualChannel] = []

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        await self.sleep(self.latency_ms)
        broker = self.brokers.get(address)
        if broker is None or not broker.up:
            raise ConnectionRefusedError("connection refused")
        channel = VirtualChannel(self, broker)
        self.channels.append(channel)
        return channel


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

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        if self._broken or self.closed or not self.broker.up:
            raise ConnectionResetError("the peer is gone")
        self.requests.append(frame)
        self._later(self.network.latency_ms, lambda: self._carry_out(self.requests.popleft()))

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
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
        self._arrived.set()

    def _carry_out(self, frame: bytes) -> None:
        """Requests in flight arrive even if the client has closed the channel meanwhile."""
        response = self.broker.answer(frame)
        if response == NO_ANSWER:
            return
        delay_ms = self.network.latency_ms
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


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; a background task that fails fails the test."""
    loop = VirtualLoop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    try:
        result = loop.run_until_complete(work)
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
    assert not unseen, unseen
    return result


def network_of(cluster: ScriptedCluster, latency_ms: int = 1) -> VirtualNetwork:
    return VirtualNetwork(cluster.network.brokers, latency_ms)
