"""Real sockets against a listener: framing, order, slow readers, hostile sizes, fairness, memory."""

import asyncio
import gc
import logging
import mmap
import socket
import struct
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Self

import pytest

from pykraft.broker.serving.listener import ListenerLimits
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.runtime.network.tcp import _CONGESTED, SHARED_BUFFER_BYTES, StreamConnection
from tests.broker.echo import LOOPS, Echo, frame, read_frame, serving
from tests.waits import settle, until


@LOOPS
async def test_frames_split_at_every_byte_are_answered_whole(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo) as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        bodies = [b"abc", b"d" * 300, b"e" * 3000]
        for byte in frame(bodies[0]) + frame(bodies[1]):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write(frame(bodies[2]))
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()


@LOOPS
async def test_large_frames_survive_buffer_growth_and_reuse(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo) as (listener, runtime):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for size in (300_000, 1_500_000, 5_000_000, 17, 70_000, 2_000_000, 1):
            sent = bytes([65 + size % 20]) * size
            writer.write(frame(sent))
            assert await read_frame(reader) == sent
        writer.close()
        await until(lambda: listener.connection_count == 0)
        assert runtime.retained_bytes == 0


@LOOPS
async def test_answers_are_sent_in_the_order_of_requests(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo) as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(frame(b"w1") + frame(b"a") + frame(b"no answer") + frame(b"w2") + frame(b"b"))
        await until(lambda: echo.frames == 5)
        (first, slot1), (second, slot2) = echo.held
        slot2.complete([second])
        slot1.complete([first[:1], first[1:]])
        assert [await read_frame(reader) for _ in range(4)] == [b"w1", b"a", b"w2", b"b"]
        writer.close()


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 2**31 - 1, 1001])
async def test_impossible_size_closes_with_one_log_line(size: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        echo = Echo()
        async with serving(echo, ListenerLimits(max_request_bytes=1000)) as (listener, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            other_reader, other = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(struct.pack(">i", size) + b"zzzz")
            assert await reader.read() == b""
            other.write(frame(b"fine"))
            assert await read_frame(other_reader) == b"fine"
            writer.close()
            other.close()
    ours = [r for r in caplog.records if r.name.startswith("pykraft")]
    assert len(ours) == 1 and "frame of" in ours[0].getMessage() and ours[0].exc_info is None


async def test_closed_connection_abandons_its_open_answers() -> None:
    echo = Echo()
    async with serving(echo) as (listener, _):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(frame(b"w1") + frame(b"w2"))
        await until(lambda: echo.frames == 2)
        writer.close()
        await until(lambda: echo.connections[0].closed)
        assert echo.abandoned == [b"w1", b"w2"]
        echo.held[0][1].complete([b"too late"])


@LOOPS
async def test_peer_that_does_not_read_is_no_longer_read(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo) as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        request = frame(b"p" * 100_000)
        total = 400
        sender = asyncio.create_task(_send_all(writer, request, total))
        await until(lambda: bool(echo.connections) and is_congested(echo.connections[0]))
        await settle(5000)
        assert echo.frames < total  # of 40 MB, of which nothing is read
        for _ in range(total):
            assert len(await read_frame(reader)) == 100_000
        await sender
        writer.close()


def is_congested(connection: Connection) -> bool:
    """Whether the peer does not read its responses fast enough, so that its requests are not read."""
    link = connection._link
    assert isinstance(link, StreamConnection)
    return bool(link._paused & _CONGESTED)


async def _send_all(writer: asyncio.StreamWriter, request: bytes, count: int) -> None:
    for _ in range(count):
        writer.write(request)
        await writer.drain()


@LOOPS
async def test_open_answers_are_bounded_and_reading_continues_when_they_drain(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo, ListenerLimits(max_pending_responses=8)) as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"".join(frame(b"w%d" % i) for i in range(50)))
        answered: list[bytes] = []
        while len(answered) < 50:
            await until(lambda: bool(echo.held))
            held, echo.held = echo.held, []
            for data, slot in held:
                slot.complete([data])
            answered += [await read_frame(reader) for _ in held]
        assert answered == [b"w%d" % i for i in range(50)]
        assert echo.most_held == 8
        writer.close()


@LOOPS
async def test_small_requests_are_served_during_bulk(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    echo = Echo()
    async with serving(echo) as (listener, _):
        bulk_request = frame(b"x" * 1_000_000)
        stop = False

        async def bulk() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            while not stop:
                writer.write(bulk_request * 4)
                for _ in range(4):
                    assert await read_frame(reader) == b"ok"
            writer.close()

        loads = [asyncio.create_task(bulk()) for _ in range(6)]
        await until(lambda: echo.bytes > 20_000_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for _ in range(20):
            before = echo.bytes
            writer.write(frame(b"small"))
            assert await read_frame(reader) == b"small"
            assert echo.bytes - before < 40_000_000
        stop = True
        await asyncio.gather(*loads)
        writer.close()


async def test_half_open_connections_hold_no_memory_for_what_they_announce() -> None:
    echo = Echo()
    async with serving(echo) as (listener, runtime):
        clients = []
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            client = socket.create_connection(("127.0.0.1", listener.port))
            client.send(struct.pack(">i", 100 * 1024 * 1024) + b"a")
            clients.append(client)
            await asyncio.sleep(0)
        await until(lambda: listener.connection_count == 300)
        await until(lambda: runtime.retained_bytes >= 300 * 1024)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 300 * 8 * 1024
        for client in clients:
            client.close()
        await until(lambda: runtime.retained_bytes == 0)


class Keeper:
    """Keeps all frames, without a copy where it may."""

    def __init__(self) -> None:
        self.kept: list[memoryview | bytes] = []

    def handle_frame(self, connection: Connection, data: memoryview, slot: ResponseSlot) -> None:
        self.kept.append(data if connection.keep_frame() else bytes(data))
        slot.complete([b"ok"])


@LOOPS
async def test_kept_frames_do_not_change(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    keeper = Keeper()
    async with serving(keeper) as (listener, runtime):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        sizes = (5, 300_000, 3, 5_000_000, 4_000_000, 70, 1_000_000, 2)
        bodies = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
        for sent in bodies:
            writer.write(frame(sent))
        for _ in bodies:
            assert await read_frame(reader) == b"ok"
        assert [bytes(kept) for kept in keeper.kept] == bodies
        large = [kept for kept in keeper.kept if len(kept) > SHARED_BUFFER_BYTES]
        assert [type(kept) for kept in large] == [memoryview] * 4
        assert runtime.retained_bytes < 4_000_000, "a frame that was kept is no longer counted"
        writer.close()


@LOOPS
async def test_large_frame_is_received_without_being_copied_while_it_grows(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(mmap.mmap):
        def __new__(cls, fileno: int, length: int, flags: int) -> Self:
            made.append(length)
            return super().__new__(cls, fileno, length, flags=flags)

    monkeypatch.setattr("mmap.mmap", Counted)
    size = 40 << 20
    echo = Echo()
    async with serving(echo) as (listener, runtime):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        sent = frame(b"x" * size)
        writer.write(sent[: 3 << 20])
        await until(lambda: runtime.retained_bytes >= 3 << 20)
        assert runtime.retained_bytes <= 6 << 20, "not the announced size"
        writer.write(sent[3 << 20 :])
        assert await read_frame(reader) == b"ok"
        assert echo.bytes == size
        assert runtime.retained_bytes == size + 4
        assert len(made) == 1 and made[0] <= 2 << 20
        writer.close()


@LOOPS
def test_connection_that_ended_is_freed_without_the_garbage_collector(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The collector ignores objects that are alive while the broker's state grows."""

    async def main() -> None:
        echo = Echo()
        async with serving(echo) as (listener, _):
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.sendall(frame(b"w"))
                await until(lambda: len(echo.held) == 1)
            connection = echo.connections.pop()
            connection.state = Echo()
            state = weakref.ref(connection.state)
            del connection
            await until(lambda: echo.abandoned == [b"w"])
            echo.held.clear()
            await until(lambda: state() is None)

    gc.disable()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
    finally:
        gc.enable()
