"""Real sockets against a listener: which connections are refused or closed, and when files run out."""

import asyncio
import contextlib
import errno
from collections.abc import Callable

import pytest

from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.network.tcp import StreamRuntime
from tests.broker.echo import LOOPS, AdvancedLoop, Echo, frame, read_frame, serving
from tests.waits import until

IDLE_S = 400
LONG_IDLE = ListenerLimits(idle_timeout_ms=IDLE_S * 1000)


def advanced_loop() -> AdvancedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, AdvancedLoop)
    return loop


@pytest.mark.loop(new=AdvancedLoop)
async def test_silent_connections_are_closed_and_busy_ones_kept() -> None:
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


@pytest.mark.loop(new=AdvancedLoop)
async def test_listeners_of_one_loop_do_not_shorten_each_others_patience() -> None:
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


async def test_limit_of_one_address_can_be_changed_while_the_listener_runs() -> None:
    async with serving(Echo()) as (listener, _):
        listener.quota.set_limits(2**31 - 1, 1)
        first_reader, first = await asyncio.open_connection("127.0.0.1", listener.port)
        first.write(frame(b"taken"))
        assert await read_frame(first_reader) == b"taken"
        reader, refused = await asyncio.open_connection("127.0.0.1", listener.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        listener.quota.set_limits(2**31 - 1, 2)
        await until(lambda: listener.connection_count == 1)
        second_reader, second = await asyncio.open_connection("127.0.0.1", listener.port)
        second.write(frame(b"taken too"))
        assert await read_frame(second_reader) == b"taken too"
        for writer in (first, refused, second):
            writer.close()


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(listener: KafkaListener, count: int) -> list[Peer]:
    """This many connections more, in this order."""
    peers = []
    for _ in range(count):
        before = listener.connection_count
        peers.append(await asyncio.open_connection("127.0.0.1", listener.port))
        await until(lambda before=before: listener.connection_count > before)  # type: ignore[misc]
    return peers


async def is_answered(peer: Peer, body: bytes) -> bool:
    """Whether a request is answered, and not the connection ended instead."""
    reader, writer = peer
    writer.write(frame(body))
    try:
        return await read_frame(reader) == body
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return False


async def is_ended(peer: Peer) -> bool:
    with contextlib.suppress(ConnectionResetError):
        assert await peer[0].read() == b""
    return True


def close(*peers: Peer) -> None:
    for _, writer in peers:
        writer.close()


@LOOPS
async def test_connections_over_the_limit_wait_until_others_end(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    echo = Echo()
    async with serving(echo, ListenerLimits(max_connections=2)) as (listener, _):
        first, second = await connect(listener, 2)
        third, fourth = await connect(listener, 2)
        for name, (_, writer) in ((b"third", third), (b"fourth", fourth)):
            writer.write(frame(name) + frame(name * 50_000))
        for number in range(20):
            assert await is_answered(first, b"%d" % number) and await is_answered(second, b"%d" % number)
        assert echo.frames == 40 and listener.connection_count == 4
        assert [it.getMessage().partition(":")[0] for it in caplog.records] == ["max.connections is reached"]
        close(first)
        assert await read_frame(third[0]) == b"third"
        assert await read_frame(third[0]) == b"third" * 50_000
        assert echo.frames == 42
        close(second)
        assert await read_frame(fourth[0]) == b"fourth"
        close(third, fourth)


@LOOPS
async def test_place_of_a_client_that_gave_up_waiting_goes_to_the_next(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async with serving(Echo(), ListenerLimits(max_connections=1)) as (listener, _):
        first, second, third = await connect(listener, 3)
        close(second)
        third[1].write(frame(b"third"))
        close(first)
        assert await read_frame(third[0]) == b"third"
        await until(lambda: listener.connection_count == 1)
        close(third)


async def test_lower_limit_ends_who_was_silent_longest_and_not_who_set_it() -> None:
    async with serving(Echo()) as (listener, _):
        operator, *others = await connect(listener, 4)
        for peer in (others[1], others[0], others[2], operator):
            assert await is_answered(peer, b"here")
        listener.quota.set_limits(2, 2**31 - 1)
        assert await is_ended(others[1]) and await is_ended(others[0])
        assert await is_answered(others[2], b"still") and await is_answered(operator, b"still")
        (waiting,) = await connect(listener, 1)
        waiting[1].write(frame(b"let in"))
        listener.quota.set_limits(3, 2**31 - 1)
        assert await read_frame(waiting[0]) == b"let in"
        close(operator, *others, waiting)


async def test_listener_between_brokers_is_served_whatever_others_hold() -> None:
    runtime = StreamRuntime(asyncio.get_running_loop())
    limits = ListenerLimits(max_connections=2)
    quota = limits.make_quota()
    async with contextlib.AsyncExitStack() as stack:
        clients, brokers = (
            KafkaListener(*(runtime, "127.0.0.1", 0, name, limits, quota), is_exempt=name == "BROKERS")
            for name in ("CLIENTS", "BROKERS")
        )
        for listener in (clients, brokers):
            await listener.start(Echo())
            stack.push_async_callback(listener.stop)
        silent, busy = await connect(clients, 2)
        assert await is_answered(silent, b"once") and await is_answered(busy, b"again")
        (waiting,) = await connect(clients, 1)
        peers = await connect(brokers, 1)
        assert await is_answered(peers[0], b"replicate"), "a broker has to wait"
        assert await is_ended(silent) and await is_answered(busy, b"still here")
        peers += await connect(brokers, 3)
        assert await is_ended(busy)
        for peer in peers:
            assert await is_answered(peer, b"replicate")
        waiting[1].write(frame(b"at last"))
        close(*peers[1:])
        await until(lambda: brokers.connection_count == 1)
        assert await read_frame(waiting[0]) == b"at last"
        close(*peers, silent, busy, waiting)


async def test_listener_that_stops_ends_connections_that_wait() -> None:
    async with serving(Echo(), ListenerLimits(max_connections=1)) as (listener, _):
        peers = await connect(listener, 3)
        await listener.stop()
        for peer in peers:
            assert await is_ended(peer)
        close(*peers)


@LOOPS
async def test_connections_are_refused_before_files_run_out_and_accepted_again_when_there_is_room(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
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


@LOOPS
async def test_connection_that_cannot_be_answered_for_lack_of_files_fails_alone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that answers it, which may serve many connections, must not fail."""
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
