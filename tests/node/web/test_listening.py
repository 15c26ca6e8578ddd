"""Connections over HTTP: how many, and for how long."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pykraft.node.web import listening
from pykraft.node.web.guard import guarded

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@asynccontextmanager
async def serving() -> AsyncIterator[Connect]:
    """A server; what connects to it."""

    async def handle(request: web.Request) -> web.Response:
        if request.query:
            await asyncio.Event().wait()
        return web.Response(text="here")

    app = web.Application()
    app.add_routes([web.get("/", handle)])
    runner = await guarded(app, (), shutdown_timeout=0.1)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    server = await listening.listen(runner, bound, 16)
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        streams = await asyncio.open_connection(*bound.getsockname())
        opened.append(streams[1])
        return streams

    try:
        async with asyncio.timeout(30):
            yield connect
    finally:
        for writer in opened:
            writer.close()
        server.close()
        await runner.cleanup()


async def is_answered(streams: Streams) -> bool:
    """False if the connection is closed instead."""
    reader, writer = streams
    try:
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        return head.startswith(b"HTTP/1.1 200") and await reader.readexactly(4) == b"here"
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Waits for it."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_so_many_connections_are_open_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 3)

    async with serving() as connect:
        connections = [await connect() for _ in range(3)]
        assert [await is_answered(one) for one in connections] == [True] * 3
        for _ in range(3):
            assert not await is_answered(await connect())
        assert [await is_answered(one) for one in connections] == [True] * 3
        connections.pop()[1].close()
        while not await is_answered(await connect()):  # until the server has seen it
            await asyncio.sleep(0)


async def test_connection_is_closed_after_its_time_whatever_is_said_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "CONNECTION_S", 0.05)

    async with serving() as connect:
        silent, begun, answered, busy = [await connect() for _ in range(4)]
        begun[1].write(GET[:20])
        assert await is_answered(answered)
        while await is_answered(busy):
            pass
        for reader, _ in (silent, begun, answered):
            assert await is_closed(reader)
        assert await is_answered(await connect())


async def test_answer_that_is_being_made_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "CONNECTION_S", 0.02)
    monkeypatch.setattr(listening, "LAST_ANSWER_S", 0.2)

    async with serving() as connect:
        loop = asyncio.get_running_loop()
        began = loop.time()
        reader, writer = await connect()
        writer.write(GET.replace(b"/", b"/?never", 1))
        assert await is_closed(reader)
        assert loop.time() - began >= 0.2


async def test_connections_that_have_ended_leave_no_timer_behind() -> None:
    async with serving() as connect:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        call_later = loop.call_later

        def noted(delay: float, *args: Any, **named: Any) -> asyncio.TimerHandle:
            timer = call_later(delay, *args, **named)
            if delay == listening.CONNECTION_S:
                timers.append(timer)
            return timer

        loop.call_later = noted  # type: ignore[assignment,method-assign]
        for _ in range(5):
            streams = await connect()
            assert await is_answered(streams)
            streams[1].close()
            while not timers[-1].cancelled():
                await asyncio.sleep(0)
        assert len(timers) == 5


def test_time_of_a_connection_is_five_minutes() -> None:
    assert listening.CONNECTION_S == 300 and listening.MAX_CONNECTIONS == 128
