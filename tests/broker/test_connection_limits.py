"""Real sockets against a listener: which connections are refused or closed, and when files run out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable

import pytest

from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.runtime.file_budget import FileBudget
from tests.broker.echo import LOOPS, AdvancedLoop, Echo, frame, read_frame, run, serving, until

IDLE_S = 400
LONG_IDLE = ListenerLimits(idle_timeout_ms=IDLE_S * 1000)


def advanced_loop() -> AdvancedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, AdvancedLoop)
    return loop


def test_silent_connections_are_closed_and_busy_ones_kept() -> None:
    async def body() -> None:
        loop = advanced_loop()
        async with serving(Echo(), LONG_IDLE) as (listener, _):
            reader, silent = await asyncio.open_connection("127.0.0.1", listener.port)
            busy_reader, busy = await asyncio.open_connection("127.0.0.1", listener.port)
            await until(lambda: listener.connection_count == 2)
            for _ in range(2 * IDLE_S // 20):
                await loop.advance(20)
                busy.write(frame(b"hello"))
                assert await read_frame(busy_reader) == b"hello"
            await until(lambda: listener.connection_count == 1)
            assert await reader.read() == b""
            silent.close()
            busy.close()

    run(AdvancedLoop, body)


def test_listeners_of_one_loop_do_not_shorten_each_others_patience() -> None:
    async def body() -> None:
        loop = advanced_loop()
        async with serving(Echo(), LONG_IDLE) as (listener, runtime), contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                other = KafkaListener(runtime, "127.0.0.1", 0, "OTHER", LONG_IDLE)
                await other.start(Echo())
                stack.push_async_callback(other.stop)
            reader, silent = await asyncio.open_connection("127.0.0.1", listener.port)
            silent.write(frame(b"hello"))
            assert await read_frame(reader) == b"hello"
            heard_s = loop.time()
            while listener.connection_count:
                await loop.advance(2)  # as often as each listener looks
            assert loop.time() - heard_s >= IDLE_S
            assert await reader.read() == b""
            silent.close()

    run(AdvancedLoop, body)


def test_limit_of_one_address_can_be_changed_while_the_listener_runs() -> None:
    async def body() -> None:
        async with serving(Echo()) as (listener, _):
            listener.limit_connections(2**31 - 1, 1)
            first_reader, first = await asyncio.open_connection("127.0.0.1", listener.port)
            first.write(frame(b"taken"))
            assert await read_frame(first_reader) == b"taken"
            reader, refused = await asyncio.open_connection("127.0.0.1", listener.port)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            listener.limit_connections(2**31 - 1, 2)
            await until(lambda: listener.connection_count == 1)
            second_reader, second = await asyncio.open_connection("127.0.0.1", listener.port)
            second.write(frame(b"taken too"))
            assert await read_frame(second_reader) == b"taken too"
            for writer in (first, refused, second):
                writer.close()

    run(asyncio.new_event_loop, body)


def test_connections_over_the_limit_are_refused() -> None:
    async def body() -> None:
        echo = Echo()
        async with serving(echo, ListenerLimits(max_connections=2)) as (listener, _):
            pairs = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
            await until(lambda: listener.connection_count == 2)
            reader, refused = await asyncio.open_connection("127.0.0.1", listener.port)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            for pair_reader, writer in pairs:
                writer.write(frame(b"still here"))
                assert await read_frame(pair_reader) == b"still here"
                writer.close()
            refused.close()

    run(asyncio.new_event_loop, body)


@LOOPS
def test_connections_are_refused_before_files_run_out_and_accepted_again_when_there_is_room(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        echo = Echo()
        files = FileBudget(60)  # 32 in reserve, 15 for files, room for 6 connections
        async with serving(echo, files=files) as (listener, _):
            pairs = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(6)]
            await until(lambda: listener.connection_count == 6)
            for _ in range(3):
                reader, refused = await asyncio.open_connection("127.0.0.1", listener.port)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), 10) == b""
                refused.close()
            assert "may open only 60 files" in caplog.text
            for pair_reader, writer in pairs:
                writer.write(frame(b"still here"))
                assert await read_frame(pair_reader) == b"still here"
            pairs.pop()[1].close()
            await until(lambda: files.connections == 5)
            reader, again = await asyncio.open_connection("127.0.0.1", listener.port)
            again.write(frame(b"room"))
            assert await read_frame(reader) == b"room"
            for writer in [again, *(writer for _, writer in pairs)]:
                writer.close()
        assert files.connections == 0

    run(new_loop, body)


@LOOPS
def test_connection_that_cannot_be_answered_for_lack_of_files_fails_alone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that answers it, which may serve many connections, must not fail."""

    async def body() -> None:
        echo = Echo()
        async with serving(echo) as (listener, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(frame(b"wait"))
            await until(lambda: len(echo.held) == 1)

            def full(descriptor: int) -> int:
                raise OSError(errno.EMFILE, "Too many open files")

            with monkeypatch.context() as patched:
                patched.setattr("os.dup", full)
                echo.held[0][1].complete([b"answer"])
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(frame(b"go on"))
            assert await read_frame(reader) == b"go on"
            writer.close()

    run(new_loop, body)
