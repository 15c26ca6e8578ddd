"""Clients of a listener over simulated connections, by seed: framing, order, limits, slow readers, memory.

Clients pipeline requests in pieces, read slowly, fall silent, disconnect at any moment, come too many at once
and send frames that are too large. The handler answers at once or later, in memory and from files (which are
read a little at a time, and may have a bad sector), holds a frame or the whole connection, and keeps frames.
The expected bytes, and which connection is refused, are computed by a plain model: every answer arrives once,
whole and in order; a connection ends only if its client gives a reason; nothing is left of those that ended.
"""

import asyncio
import gc
import random
import struct
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.network import tcp
from pykraft.runtime.network.file_slices import FileSlice
from pykraft.runtime.network.streams import Chunk
from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime
from pykraft.runtime.network.tcp_server import _UnservedSession
from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.memory_disk import MemoryDisk, MemoryFile
from pykraft.runtime.simulated.processes import SimProcess
from pykraft.runtime.simulated.streams import NetworkLoop, address_of

PORT = 9092
SERVER = 9
HOSTS = (1, 2, 3)
FRAME_LIMIT_BYTES = 60_000
IDLE_S = 8.0
PATIENCE_S = 20.0
DURATION_S = 30.0
FILE_LIMIT = 70
CONTENT = bytes(i * 7 % 251 for i in range(200_000))
BAD_POSITION = 150_000


class SlowFile(MemoryFile):
    """Reads return less than asked for, as those of a network file system may."""

    def pread_into(self, position: int, buffer: memoryview) -> int:
        return super().pread_into(position, buffer[:5_000])


@dataclass(frozen=True)
class Slice:
    file: MemoryFile
    position: int
    size_bytes: int


class State:
    """What a handler keeps of a connection."""


class Server:
    """The handler of requests, and the model of which connections are accepted."""

    def __init__(self, loop: NetworkLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.files = FileBudget(FILE_LIMIT)
        self.runtime = StreamRuntime(loop, files=self.files, now_us=lambda: int(loop.now_s * 1e6))
        self.max_connections, self.max_per_address = 20, 20
        limits = ListenerLimits(
            max_request_bytes=FRAME_LIMIT_BYTES,
            max_connections=self.max_connections,
            max_connections_per_ip=self.max_per_address,
            idle_timeout_ms=int(IDLE_S * 1000),
            max_pending_responses=6,
        )
        self.listener = KafkaListener(self.runtime, None, PORT, "PLAINTEXT", limits)
        disk = MemoryDisk()
        disk.open("f").append(CONTENT)
        disk.make_unreadable("f", BAD_POSITION)
        plain = disk.open("f")
        self.data_files = plain, SlowFile(disk, "f", plain._inode)
        self.kept: list[tuple[memoryview, bytes]] = []
        self.expected: dict[bytes, bytes] = {}
        self.unreadable: list[FileSlice] = []
        self.bad: set[bytes] = set()
        self.bad_met = 0
        self.open_files = 0
        self.open: Counter[str] = Counter()
        self.connections: set[StreamConnection] = set()
        self.entered: dict[StreamConnection, str] = {}  # all but those that were refused, with their hosts
        self.served: dict[StreamConnection, None] = {}
        self.waiting: dict[StreamConnection, None] = {}
        self.waiting_peers: set[tuple[str, int]] = set()
        self.refused: set[tuple[str, int]] = set()
        self.states: list[weakref.ref[State]] = []
        self.counts: Counter[str] = Counter()

    # -- connections -----------------------------------------------------------------------------------

    def connection_made(
        self, made: Callable[[StreamConnection, asyncio.BaseTransport], None],
        connection: StreamConnection, transport: asyncio.BaseTransport,
    ) -> None:  # fmt: skip
        made(connection, transport)
        host, port = connection.peer
        count = self.open.total() + 1
        files = max(self.open_files, FILE_LIMIT // 4)
        fits = files + 2 * count + self.files.reserve <= FILE_LIMIT
        wanted = fits and list(self.entered.values()).count(host) < self.max_per_address
        assert connection.closed is not wanted, (
            f"{count} connections, {files} files: accepted is not {wanted}"
        )
        self.open[host] += 1
        self.connections.add(connection)
        if not wanted:
            self.refused.add((host, port))
            self.counts["refused"] += 1
            return
        self.entered[connection] = host
        if len(self.served) < self.max_connections:
            self.served[connection] = None
        else:
            self.waiting[connection] = None
            self.waiting_peers.add((host, port))
            self.counts["waited"] += 1
        self.check_places()

    def admit(self) -> None:
        """Those that wait longest take the places that are free."""
        while self.waiting and len(self.served) < self.max_connections:
            connection = next(iter(self.waiting))
            del self.waiting[connection]
            self.waiting_peers.discard(connection.peer)
            self.served[connection] = None

    def check_places(self) -> None:
        for connection in self.waiting:
            assert isinstance(connection.session, _UnservedSession), "more are served than may be"
        for connection in self.served:
            assert connection.closed or isinstance(connection.session, Connection), "a place stays free"

    def connection_lost(
        self, lost: Callable[[StreamConnection, Exception | None], None],
        connection: StreamConnection, exc: Exception | None,
    ) -> None:  # fmt: skip
        host, port = connection.peer
        lost(connection, exc)
        self.open[host] -= 1
        self.connections.remove(connection)
        if connection in self.waiting:
            self.refused.add((host, port))  # it was silent too long, or its client gave up
            self.waiting_peers.discard((host, port))
        self.entered.pop(connection, None)
        self.served.pop(connection, None)
        self.waiting.pop(connection, None)
        self.admit()
        self.check_places()
        assert self.files.connections == self.open.total() == self.listener.connection_count

    def check_outputs(self) -> None:
        for connection in self.connections:
            output = connection._output
            if output is not None and not output.pending_chunks:
                assert output.memory_bytes == 0, "memory that was sent is counted"

    def change_limits(self) -> None:
        """As an admin does; logs open and close files meanwhile."""
        self.max_connections = self.rng.choice((0, 3, 8, 20))
        self.max_per_address = self.rng.choice((1, 4, 20))
        surplus = max(len(self.served) - self.max_connections, 0)
        by_silence = sorted(self.served, key=lambda connection: connection.last_received)
        self.listener.quota.set_limits(self.max_connections, self.max_per_address)
        for connection in by_silence[:surplus]:
            assert connection.closed, "a connection stays that has no place any more"
            del self.served[connection]
            self.refused.add(connection.peer)
            self.counts["ended for others"] += 1
        assert not any(connection.closed and connection in self.served for connection in by_silence[surplus:])
        self.admit()
        self.check_places()
        wanted = self.rng.choice((0, 10, 25, 34))
        while self.open_files < wanted:
            self.files.file_opened()
            self.open_files += 1
        while self.open_files > wanted:
            self.files.file_closed()
            self.open_files -= 1

    # -- requests --------------------------------------------------------------------------------------

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        rng = self.rng
        if connection.state is None:
            connection.state = State()
            self.states.append(weakref.ref(connection.state))
        roll = rng.random()
        if roll < 0.05:
            connection.hold_frame(int(self.loop.now_s * 1000))
            self.loop.call_later(rng.random(), connection.retry_frame)
            self.counts["held frame"] += 1
            return
        self.loop.now_s += rng.choice((0.0, 0.0002, 0.003))  # the work for a request takes its time
        body = bytes(frame)
        identity = body[:8]
        assert body[8:] == identity * ((len(body) - 8) // 8), "the frame is not what the client has sent"
        if rng.random() < 0.3:
            self.kept.append((frame if connection.keep_frame() else memoryview(body), body))
            del self.kept[:-40]
        if roll < 0.1:
            connection.hold()
            self.loop.call_later(rng.random() / 2, connection.release)
            self.counts["held"] += 1
        if roll > 0.95:
            self.expected[identity] = b""
            slot.complete_without_response()
        elif roll < 0.4:
            slot.on_abandon = partial(self.counts.update, ["abandoned"])
            self.loop.call_later(rng.random() / 2, self._answer_later, slot, identity)
        else:
            slot.complete(self._answer(identity))

    def _answer_later(self, slot: ResponseSlot, identity: bytes) -> None:
        if not slot.abandoned:
            slot.complete(self._answer(identity))

    def _answer(self, identity: bytes) -> list[Chunk]:
        """Chunks of memory and ranges of files."""
        rng = self.rng
        chunks: list[Chunk] = [identity]
        expected = bytearray(identity)
        for _ in range(rng.randrange(4)):
            size = rng.choice((0, 7, 300, 5_000, 80_000))
            if rng.random() < 0.5:
                chunks.append(identity * (size // 8))
                expected += identity * (size // 8)
                continue
            position = rng.randrange(BAD_POSITION - size)
            if rng.random() < 0.01:
                position, size = BAD_POSITION - 10, 20
                self.bad.add(identity)
            chunks.append(Slice(rng.choice(self.data_files), position, size))
            expected += CONTENT[position : position + size]
        self.expected[identity] = bytes(expected)
        return chunks


class Client(asyncio.Protocol):
    """One connection: sends requests, and checks each answer against the model."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.received = bytearray()
        self.asked: list[bytes] = []
        self.lost = False
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            (size,) = struct.unpack(">i", self.received[:4])
            if len(self.received) < 4 + size:
                break
            answer = bytes(self.received[4 : 4 + size])
            del self.received[: 4 + size]
            expected = self.world.server.expected
            while expected.get(self.asked[0]) == b"":
                self.asked.pop(0)
            identity = self.asked.pop(0)
            assert answer == expected[identity], "an answer is not the one to the next request"
            self.world.server.counts["answers"] += 1
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.changed.set()

    @property
    def is_answered(self) -> bool:
        return all(self.world.server.expected.get(identity) == b"" for identity in self.asked)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        loop = self.world.loop
        end_s = loop.now_s + PATIENCE_S
        while not condition() and not self.lost:
            if self.world.is_waiting(self):
                end_s = loop.now_s + PATIENCE_S
            assert loop.now_s < end_s, what
            self.changed.clear()
            loop.call_later(0.5, self.changed.set)
            await self.changed.wait()


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = NetworkLoop(
            Links(random.Random(seed), max_delay_ms=4), random.Random(seed), window_bytes=30_000
        )
        self.loop.streams.links.straggle = 0.02
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.server = Server(self.loop, self.rng)
        self.process = SimProcess("server", host=SERVER)
        self.number = 0

    async def serve(self) -> None:
        await self.server.listener.start(self.server, self.server.unreadable.append)
        while self.loop.now_s < DURATION_S:
            await asyncio.sleep(1)
            self.server.change_limits()
            self.server.check_outputs()

    async def client(self) -> None:
        await asyncio.sleep(self.rng.random() * 5)
        while self.loop.now_s < DURATION_S:
            _, client = await self.loop.create_connection(lambda: Client(self), address_of(SERVER), PORT)
            assert isinstance(client, Client)
            await self.session(client)
            await asyncio.sleep(self.rng.random())

    async def session(self, client: Client) -> None:
        rng, transport = self.rng, client.transport
        for _ in range(rng.choice((0, 1, 4, 25))):
            await self.send(client)
            if rng.random() < 0.1:
                transport.pause_reading()
                await asyncio.sleep(rng.random() * 2)
                transport.resume_reading()
            await client.until(lambda: len(client.asked) < 10, "requests are not answered")
            if client.lost:
                break
        how = rng.random()
        if how < 0.2:
            transport.abort()
            return
        await client.until(lambda: client.is_answered, "requests are not answered")
        if how < 0.3 and not client.lost:
            transport.write(struct.pack(">i", rng.choice((-1, FRAME_LIMIT_BYTES + 1, 2**31 - 1))))
            await client.until(lambda: False, "a frame that is too large does not end its connection")
        elif how < 0.4 and not client.lost:
            began_s = self.loop.now_s
            await client.until(lambda: False, "a silent connection is kept")
            if not self.is_refused(client):
                assert self.loop.now_s - began_s > IDLE_S - 1, "a connection that is not idle was closed"
                self.server.counts["idle"] += 1
        else:
            assert not client.lost or self.may_be_lost(client), "a connection ends for no reason"
        transport.abort()

    def is_waiting(self, client: Client) -> bool:
        return client.transport.get_extra_info("sockname") in self.server.waiting_peers

    def is_refused(self, client: Client) -> bool:
        return client.transport.get_extra_info("sockname") in self.server.refused

    def may_be_lost(self, client: Client) -> bool:
        """It was refused, or an answer to it is in a sector that cannot be read."""
        has_met_bad = any(identity in self.server.bad for identity in client.asked)
        self.server.bad_met += has_met_bad
        return has_met_bad or self.is_refused(client)

    async def send(self, client: Client) -> None:
        self.number += 1
        identity = struct.pack(">q", self.number)
        repeats = self.rng.choice((1, 1, 4, 60, 2_000, 7_000))
        client.asked.append(identity)
        frame = struct.pack(">i", 8 * repeats) + identity * repeats
        while frame:
            size = self.rng.choice((3, 1_000, 20_000, 100_000))
            client.transport.write(frame[:size])
            frame = frame[size:]
            if len(frame) < 9_000 or self.rng.random() < 0.3:
                await asyncio.sleep(self.rng.choice((0, 0.003, 0.3)))

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> None:
        loop = self.loop
        server = loop.create_task(self.serve(), context=self.process.context)
        clients = []
        for host in HOSTS:
            for _ in range(5):
                process = SimProcess(f"client {host}", host=host)
                clients.append(loop.create_task(self.client(), context=process.context))
        loop.run_until_complete(asyncio.gather(server, *clients))
        for view, body in self.server.kept:
            assert view == body, "a frame that was kept has changed"
        self.server.kept.clear()
        busy = SimProcess("last", host=1)
        self.server.listener.quota.set_limits(20, 20)
        self.server.max_connections = self.server.max_per_address = 20
        self.server.admit()
        last = loop.run_until_complete(loop.create_task(self.stay(), context=busy.context))
        stop = loop.create_task(self.server.listener.stop(), context=self.process.context)
        loop.run_until_complete(asyncio.wait([stop], timeout=2))
        assert stop.done(), "the listener does not stop"
        loop.run_until_complete(asyncio.sleep(2))
        assert last.lost and self.server.open.total() == 0, "a listener that has stopped keeps connections"
        assert self.server.runtime.retained_bytes == 0, "memory of connections that have ended is counted"
        if self.server.bad_met:
            assert self.server.unreadable, "a sector that cannot be read was not reported"
        assert not self.errors, self.errors[0]
        loop.close()

    async def stay(self) -> Client:
        """The last client is busy for longer than idle connections are kept."""
        _, client = await self.loop.create_connection(lambda: Client(self), address_of(SERVER), PORT)
        assert isinstance(client, Client)
        for _ in range(int(2.5 * IDLE_S)):
            await self.send(client)
            await client.until(lambda: client.is_answered, "requests are not answered")
            await asyncio.sleep(0.5)
        assert not client.lost or self.may_be_lost(client), "a busy connection ends for no reason"
        return client


def run_world(seed: int, monkeypatch: pytest.MonkeyPatch) -> Server:
    world = World(seed)
    server = world.server
    made, lost = StreamConnection.connection_made, StreamConnection.connection_lost

    def connection_made(self: StreamConnection, transport: asyncio.BaseTransport) -> None:
        server.connection_made(made, self, transport)

    def connection_lost(self: StreamConnection, exc: Exception | None) -> None:
        server.connection_lost(lost, self, exc)

    with monkeypatch.context() as patched:
        patched.setattr(tcp, "OUTPUT_MEMORY_BYTES_MAX", 100_000)
        patched.setattr(tcp, "OUTPUT_CHUNKS_MAX", 12)
        patched.setattr(StreamConnection, "connection_made", connection_made)
        patched.setattr(StreamConnection, "connection_lost", connection_lost)
        world.run()
    return server


@pytest.mark.parametrize("seed", range(12))
def test_answers_arrive_whole_and_in_order_and_connections_end_for_a_reason(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    gc.disable()
    try:
        server = run_world(seed, monkeypatch)
        states, counts = server.states, server.counts
        assert all(state() is None for state in states), "a connection that has ended stays in memory"
    finally:
        gc.enable()
    assert counts["answers"] > 200 and counts["refused"] > 100 and len(states) > 20, counts
    assert counts["waited"] > 10 and counts["ended for others"] > 3, counts
