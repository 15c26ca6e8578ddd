"""Calls over real gRPC on loopback."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykraft.runtime import grpc_rpc
from pykraft.runtime.address import Address
from pykraft.runtime.grpc_rpc import GrpcServer, GrpcTransport
from pykraft.runtime.rpc import RpcFailure
from pykraft.runtime.rpc_limits import ServerLimits
from tests.unexpected import unexpected
from tests.waits import until


async def _call(
    transport: GrpcTransport, port: int, method: str, payload: bytes, deadline_ms: int = 5000
) -> bytes | RpcFailure:
    reply: asyncio.Future[bytes | RpcFailure] = asyncio.get_running_loop().create_future()
    transport.send(Address("127.0.0.1", port), method, payload, deadline_ms, reply.set_result)
    assert not reply.done()
    return await reply


@asynccontextmanager
async def serving_echo(limits: ServerLimits | None = None) -> AsyncIterator[tuple[GrpcTransport, int]]:
    server = GrpcServer(limits)

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
    port = await server.bind("127.0.0.1", 0)
    await server.start()
    transport = GrpcTransport(unexpected)
    try:
        yield transport, port
    finally:
        await transport.close()
        await server.stop(0)


async def test_a_call_is_answered() -> None:
    async with serving_echo() as (transport, port):
        assert await _call(transport, port, "/test.Echo/Reverse", b"abc") == b"cba"


async def test_a_raising_handler_an_unknown_method_and_a_passed_deadline_are_failures() -> None:
    async with serving_echo() as (transport, port):
        for method in ("/test.Echo/Fail", "/test.Echo/None"):
            assert isinstance(await _call(transport, port, method, b""), RpcFailure)
        outcome = await _call(transport, port, "/test.Echo/Hang", b"", deadline_ms=50)
        assert isinstance(outcome, RpcFailure)
        assert "DEADLINE" in outcome.reason


async def test_caller_that_breaks_over_an_answer_is_reported() -> None:
    async with serving_echo() as (_, port):
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        transport = GrpcTransport(failed.set_result)

        def break_down(reply: bytes | RpcFailure) -> None:
            raise ZeroDivisionError

        try:
            transport.send(Address("127.0.0.1", port), "/test.Echo/Reverse", b"", 5000, break_down)
            async with asyncio.timeout(20):
                assert isinstance(await failed, ZeroDivisionError)
        finally:
            await transport.close()


async def test_a_taken_port_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = GrpcServer()
        with pytest.raises(OSError, match="address already in use"):
            await server.bind("127.0.0.1", taken.getsockname()[1])
        await server.stop(0)


async def test_address_is_free_again_after_a_failed_bind() -> None:
    first = GrpcServer()
    port = await first.bind("127.0.0.1", 0)
    await first.stop(0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


async def test_port_of_another_node_is_refused() -> None:
    async with serving_echo() as (_, port):
        server = GrpcServer()
        with pytest.raises(OSError, match="address already in use"):
            await server.bind("127.0.0.1", port)
        await server.stop(0)


async def test_absent_node_is_retried_without_long_pauses() -> None:
    """With pauses that double, the last of these attempts would come after twenty seconds."""
    attempts = 0
    enough = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 11:
            enough.set()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = GrpcTransport(unexpected)
    try:
        async with server, asyncio.timeout(10):
            while not enough.is_set():
                assert isinstance(await _call(transport, port, "/test.Echo/Reverse", b"", 500), RpcFailure)
    finally:
        await transport.close()


# --- what a flood can make a server hold -----------------------------------------------------------------


class Held:
    """A handler that answers no call until a test allows it, and records which calls still wait."""

    def __init__(self) -> None:
        self.waiting = 0
        self.release = asyncio.Event()

    async def __call__(self, payload: bytes) -> bytes:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return b"done"


@asynccontextmanager
async def holding_calls(limits: ServerLimits) -> AsyncIterator[tuple[GrpcTransport, int, Held]]:
    server, held = GrpcServer(limits), Held()
    server.register("/test.Echo/Hold", held)
    port = await server.bind("127.0.0.1", 0)
    await server.start()
    transport = GrpcTransport(unexpected)
    try:
        yield transport, port, held
    finally:
        held.release.set()
        await transport.close()
        await server.stop(0)


async def test_handler_of_a_caller_that_disconnects_is_cancelled() -> None:
    async with holding_calls(ServerLimits()) as (_, port, held):
        stranger = GrpcTransport(unexpected)
        calls = [asyncio.ensure_future(_call(stranger, port, "/test.Echo/Hold", b"")) for _ in range(20)]
        await until(lambda: held.waiting == 20)
        await stranger.close()
        await until(lambda: held.waiting == 0)
        for call in calls:
            call.cancel()


async def test_handler_of_an_abandoned_call_is_cancelled_and_sends_no_response() -> None:
    async with holding_calls(ServerLimits()) as (transport, port, held):
        notified: list[bytes | RpcFailure] = []
        call = transport.send(Address("127.0.0.1", port), "/test.Echo/Hold", b"", 60_000, notified.append)
        await until(lambda: held.waiting == 1)
        call.cancel()
        await until(lambda: held.waiting == 0)
        held.release.set()
        assert await _call(transport, port, "/test.Echo/Hold", b"") == b"done"
        call.cancel()
        assert notified == []


async def test_handler_of_a_call_whose_deadline_has_passed_is_cancelled() -> None:
    async with holding_calls(ServerLimits()) as (transport, port, held):
        assert isinstance(await _call(transport, port, "/test.Echo/Hold", b"", 50), RpcFailure)
        await until(lambda: held.waiting == 0)


async def test_calls_beyond_the_limit_are_refused_at_once_and_later_ones_answered() -> None:
    async with holding_calls(ServerLimits(calls=5)) as (transport, port, held):
        first = [asyncio.ensure_future(_call(transport, port, "/test.Echo/Hold", b"")) for _ in range(5)]
        await until(lambda: held.waiting == 5)
        refused = await _call(transport, port, "/test.Echo/Hold", b"")
        assert isinstance(refused, RpcFailure) and "RESOURCE_EXHAUSTED" in refused.reason
        held.release.set()
        assert await asyncio.gather(*first) == [b"done"] * 5
        await until(lambda: held.waiting == 0)
        assert await _call(transport, port, "/test.Echo/Hold", b"") == b"done"


async def test_call_to_a_node_that_still_opens_its_log_fails_at_once_and_is_answered_later() -> None:
    """Its address is bound first. The deadline of the call, a minute, is not waited for."""
    server, hold = GrpcServer(), Held()
    hold.release.set()
    server.register("/test.Echo/Hold", hold)
    port = await server.bind("127.0.0.1", 0)
    transport = GrpcTransport(unexpected)
    try:
        async with asyncio.timeout(20):
            refused = await _call(transport, port, "/test.Echo/Hold", b"", 60_000)
            assert isinstance(refused, RpcFailure) and "UNAVAILABLE" in refused.reason
            await server.start()
            while await _call(transport, port, "/test.Echo/Hold", b"", 60_000) != b"done":
                pass
    finally:
        await transport.close()
        await server.stop(0)


async def test_bytes_that_are_being_served_are_bounded() -> None:
    async with holding_calls(ServerLimits(served_bytes=300_000)) as (transport, port, held):
        payload = bytes(100_000)
        first = [asyncio.ensure_future(_call(transport, port, "/test.Echo/Hold", payload)) for _ in range(3)]
        await until(lambda: held.waiting == 3)
        refused = await _call(transport, port, "/test.Echo/Hold", payload)
        assert isinstance(refused, RpcFailure) and "RESOURCE_EXHAUSTED" in refused.reason
        held.release.set()
        assert await asyncio.gather(*first) == [b"done"] * 3
        assert await _call(transport, port, "/test.Echo/Hold", payload) == b"done"


async def test_request_that_is_too_large_is_refused_and_the_next_one_answered() -> None:
    async with serving_echo(ServerLimits(request_bytes=10_000)) as (transport, port):
        refused = await _call(transport, port, "/test.Echo/Reverse", bytes(20_000))
        assert isinstance(refused, RpcFailure) and "RESOURCE_EXHAUSTED" in refused.reason
        assert await _call(transport, port, "/test.Echo/Reverse", b"abc") == b"cba"


async def test_connections_beyond_the_limit_are_closed_and_open_ones_continue() -> None:
    async with serving_echo(ServerLimits(connections=4)) as (transport, port):
        assert await _call(transport, port, "/test.Echo/Reverse", b"abc") == b"cba"
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        closed = 0
        for reader, _ in flood:
            # An accepted connection gets the settings of HTTP/2, a refused one nothing.
            with contextlib.suppress(ConnectionError, TimeoutError):
                closed += await asyncio.wait_for(reader.read(1), 5) == b""
        assert closed >= 36
        assert await _call(transport, port, "/test.Echo/Reverse", b"abc") == b"cba"
        for _, writer in flood:
            writer.close()


async def test_caller_keeps_channels_to_the_latest_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_rpc, "MOST_CHANNELS", 3)

    async with serving_echo() as (transport, port):
        held = asyncio.ensure_future(_call(transport, port, "/test.Echo/Hang", b"", 10_000))
        await asyncio.sleep(0)
        for closed_port in range(1, 30):
            assert isinstance(await _call(transport, closed_port, "/test.Echo/Reverse", b"", 100), RpcFailure)
        assert len(transport._peers) == 3
        assert Address("127.0.0.1", port) in transport._peers, "a call is in flight there"
        assert not held.done()
        held.cancel()


def test_caller_that_has_gone_is_not_reported_like_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("grpc._cython.cygrpc")
    for fault in ("ExecuteBatchError", "Exception"):
        logger.error("%s raised in core by servicer method [%s]", fault, "/test.Echo/Hang")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["Exception"]
