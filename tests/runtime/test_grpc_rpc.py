"""Calls over real gRPC on loopback."""

from __future__ import annotations

import asyncio
import socket

import pytest

from pykraft.runtime.grpc_rpc import GrpcServer, GrpcTransport
from pykraft.runtime.rpc import RpcAddress, RpcFailure


async def _call(
    transport: GrpcTransport, port: int, method: str, payload: bytes, deadline_ms: int = 5000
) -> bytes | RpcFailure:
    reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()
    transport.send(RpcAddress("127.0.0.1", port), method, payload, deadline_ms, reply.set_result)
    assert not reply.done()
    return await reply


async def _with_server(case):  # type: ignore[no-untyped-def]
    server = GrpcServer("127.0.0.1", 0)

    async def echo(payload: bytes) -> bytes:
        return payload[::-1]

    async def fail(payload: bytes) -> bytes:
        raise ValueError("a bug")

    async def hang(payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    server.register("/test.Echo/Reverse", echo)
    server.register("/test.Echo/Fail", fail)
    server.register("/test.Echo/Hang", hang)
    port = await server.start()
    transport = GrpcTransport()
    try:
        await case(transport, port)
    finally:
        await transport.close()
        await server.stop(0)


def test_a_call_is_answered() -> None:
    async def case(transport: GrpcTransport, port: int) -> None:
        assert await _call(transport, port, "/test.Echo/Reverse", b"abc") == b"cba"

    asyncio.run(_with_server(case))


def test_a_raising_handler_an_unknown_method_and_a_passed_deadline_are_failures() -> None:
    async def case(transport: GrpcTransport, port: int) -> None:
        for method in ("/test.Echo/Fail", "/test.Echo/None"):
            assert isinstance(await _call(transport, port, method, b""), RpcFailure)
        outcome = await _call(transport, port, "/test.Echo/Hang", b"", deadline_ms=50)
        assert isinstance(outcome, RpcFailure)
        assert "DEADLINE" in outcome.reason

    asyncio.run(_with_server(case))


def test_a_taken_port_is_refused() -> None:
    async def case() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(OSError, match="cannot listen"):
                await GrpcServer("127.0.0.1", taken.getsockname()[1]).start()

    asyncio.run(case())
