"""Calls of a node to itself have the outcomes of calls to another node, without a network."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pykraft.runtime.address import Address
from pykraft.runtime.own_calls import OwnCalls, OwnFirstTransport
from pykraft.runtime.rpc import PendingCall, RpcFailure
from pykraft.runtime.rpc_limits import ServerLimits
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.unexpected import unexpected
from tests.waits import settle

HERE, ELSEWHERE = Address("here", 1), Address("elsewhere", 2)
LIMITS = ServerLimits(calls_of_a_connection=2, request_bytes=100, served_bytes=150)


class Held:
    """A handler that answers when a test allows it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.release = asyncio.Event()

    async def __call__(self, payload: bytes) -> bytes:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return payload[::-1]


class Remote:
    """The transport for other nodes; it fails every call."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[Address] = []
        self.closed = False

    def make(self) -> "Remote":
        self.made += 1
        return self

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        self.asked.append(to)
        loop = asyncio.get_running_loop()
        return loop.call_soon(on_reply, RpcFailure("far away"))

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.held, self.remote = Held(), Remote()
        own = OwnCalls(LIMITS)
        own.register("/Hold", self.held)
        own.register("/Fail", self.fail)
        self.transport = OwnFirstTransport(own, HERE, self.remote.make, unexpected)
        self.replies: list[bytes | RpcFailure] = []

    async def fail(self, payload: bytes) -> bytes:
        raise TimeoutError("a bug")

    def send(self, method: str, payload: bytes = b"", deadline_ms: int = 5000) -> PendingCall:
        return self.transport.send(HERE, method, payload, deadline_ms, self.replies.append)

    async def call(
        self, method: str, payload: bytes = b"", deadline_ms: int = 5000, to: Address = HERE
    ) -> bytes | str:
        reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()
        self.transport.send(to, method, payload, deadline_ms, reply.set_result)
        assert not reply.done(), "answered inside send"
        outcome = await reply
        return outcome.reason.partition(":")[0] if isinstance(outcome, RpcFailure) else outcome


@asynccontextmanager
async def begun() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.transport.close()


world = in_loop(begun, VirtualLoop)


async def test_own_call_is_answered_without_a_transport_for_others(world: World) -> None:
    world.held.release.set()
    assert await world.call("/Hold", b"abc") == b"cba"
    assert world.remote.made == 0


async def test_other_addresses_share_one_transport_which_is_closed_as_well(world: World) -> None:
    assert await world.call("/Hold", to=ELSEWHERE) == "far away"
    assert await world.call("/Hold", to=ELSEWHERE) == "far away"
    assert (world.remote.made, world.remote.asked) == (1, [ELSEWHERE] * 2)
    await world.transport.close()
    assert world.remote.closed and world.held.waiting == 0


async def test_raising_handler_unknown_method_and_too_long_request_are_failures(world: World) -> None:
    assert await world.call("/Fail") == "INTERNAL"
    assert await world.call("/None") == "UNIMPLEMENTED"
    assert await world.call("/Hold", bytes(LIMITS.request_bytes + 1)) == "RESOURCE_EXHAUSTED"


async def test_deadline_and_cancellation_end_the_handler(world: World) -> None:
    began = asyncio.get_running_loop().time()
    assert await world.call("/Hold", deadline_ms=300) == "DEADLINE_EXCEEDED"
    assert round(asyncio.get_running_loop().time() - began, 3) == 0.3
    assert world.held.waiting == 0
    call = world.send("/Hold")
    await settle()
    assert world.held.waiting == 1
    call.cancel()
    await settle()
    assert (world.held.waiting, world.replies) == (0, [])


async def test_bytes_that_are_being_served_are_bounded_and_given_back(world: World) -> None:
    world.send("/Hold", bytes(100))
    await settle()
    assert await world.call("/Hold", bytes(100)) == "RESOURCE_EXHAUSTED"
    world.held.release.set()
    await settle()
    assert world.replies == [bytes(100)]
    assert await world.call("/Hold", bytes(100)) == bytes(100)


async def test_calls_beyond_the_limit_wait_for_their_turn_within_their_deadline(world: World) -> None:
    for _ in range(3):
        world.send("/Hold", b"ab")
    await settle()
    assert world.held.waiting == 2
    assert await world.call("/Hold", deadline_ms=100) == "DEADLINE_EXCEEDED"
    world.held.release.set()
    await settle()
    assert world.replies == [b"ba"] * 3


async def test_close_cancels_what_is_in_flight(world: World) -> None:
    world.send("/Hold")
    await settle()
    await world.transport.close()
    assert (world.held.waiting, world.replies) == (0, [])
