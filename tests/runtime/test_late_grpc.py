"""The server that imports gRPC late: its address is taken from the beginning, calls of others come later."""

import asyncio
import socket
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from pykraft.runtime import late_grpc
from pykraft.runtime.address import Address
from pykraft.runtime.late_grpc import LateGrpcServer, make_grpc_transport
from pykraft.runtime.own_calls import OwnCalls
from pykraft.runtime.rpc import RpcFailure
from tests.unexpected import unexpected

HOST = "127.0.0.1"


async def echo(payload: bytes) -> bytes:
    return payload[::-1]


async def call(port: int, payload: bytes) -> bytes | RpcFailure:
    reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()
    transport = make_grpc_transport(unexpected)
    transport.send(Address(HOST, port), "/Echo", payload, 5000, reply.set_result)
    try:
        return await reply
    finally:
        await transport.close()


async def call_again(port: int, payload: bytes) -> bytes | RpcFailure:
    """As nodes do: the connection of an earlier call, which gRPC goes on using, is reset by the start."""
    for _ in range(20):
        answer = await call(port, payload)
        if not isinstance(answer, RpcFailure):
            break
    return answer


def run(scenario: Callable[[LateGrpcServer, OwnCalls], Awaitable[None]]) -> None:
    async def main() -> None:
        own = OwnCalls()
        server = LateGrpcServer(own)
        server.register("/Echo", echo)
        try:
            await scenario(server, own)
        finally:
            await server.stop(0)

    asyncio.run(main())


def test_own_calls_are_served_before_the_start_and_those_of_others_after_it() -> None:
    async def scenario(server: LateGrpcServer, own: OwnCalls) -> None:
        port = await server.bind(HOST, 0)
        assert await own.call("/Echo", b"abc", 1000) == b"cba"
        assert isinstance(await call(port, b"abc"), RpcFailure)
        await server.start()
        assert await call_again(port, b"abc") == b"cba"

    run(scenario)


def test_address_that_is_held_is_refused_to_others() -> None:
    async def scenario(server: LateGrpcServer, _: OwnCalls) -> None:
        port = await server.bind(HOST, 0)
        other = LateGrpcServer(OwnCalls())
        with pytest.raises(OSError, match="address already in use"):
            await other.bind(HOST, port)
        await server.start()
        with pytest.raises(OSError, match="address already in use"):
            await other.bind(HOST, port)
        await other.stop(0)

    run(scenario)


def test_address_that_another_process_took_meanwhile_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: LateGrpcServer, _: OwnCalls) -> None:
        port = await server.bind(HOST, 0)
        release = server._release
        with socket.socket() as quick:

            def release_and_lose() -> None:
                release()
                quick.bind((HOST, port))
                quick.listen()

            monkeypatch.setattr(server, "_release", release_and_lose)
            with pytest.raises(OSError, match="address already in use"):
                await server.start()
        monkeypatch.undo()

    run(scenario)


def test_address_that_this_machine_lacks_is_named_as_such() -> None:
    """192.0.2.1 is reserved for documentation."""

    async def scenario(server: LateGrpcServer, _: OwnCalls) -> None:
        with pytest.raises(OSError, match="assign requested address"):
            await server.bind("192.0.2.1", 9093)

    run(scenario)


def test_address_is_free_again_after_a_stop_without_a_start() -> None:
    async def scenario(server: LateGrpcServer, _: OwnCalls) -> None:
        port = await server.bind(HOST, 0)
        await server.stop(0)
        with socket.socket() as free:
            free.bind((HOST, port))

    run(scenario)


def test_threads_switch_as_before_when_several_nodes_have_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of one process import at the same time."""
    interval_s = sys.getswitchinterval()
    entered, left = [threading.Event() for _ in "12"], [threading.Event() for _ in "12"]
    numbers = iter(range(2))

    def import_slowly() -> None:
        number = next(numbers)
        entered[number].set()
        assert left[number].wait(10)

    monkeypatch.setattr(late_grpc, "_import_grpc", import_slowly)
    nodes = [threading.Thread(target=late_grpc._import_beside_the_loop) for _ in "12"]
    try:
        for node, has_entered in zip(nodes, entered, strict=True):
            node.start()
            assert has_entered.wait(10)
        for node, may_leave in zip(nodes, left, strict=True):
            may_leave.set()
            node.join(10)
        assert sys.getswitchinterval() == interval_s
    finally:
        sys.setswitchinterval(interval_s)
