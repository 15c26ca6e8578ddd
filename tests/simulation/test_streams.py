"""Simulated TCP: what a protocol on either side sees under faults of machines and links."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.runtime.address import Address
from pykraft.runtime.network.connection_quota import ConnectionQuota
from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime
from pykraft.runtime.network.tcp_server import StreamServer
from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.processes import SimProcess
from pykraft.runtime.simulated.streams import NetworkLoop, address_of, host_of
from pykraft.runtime.turns import BULK
from tests.narrowing import as_type

T = TypeVar("T")

PORT = 9092
CLIENT, SERVER = 1, 2


class Machines:
    """A client's process on one machine, a server's on another, and the links between them."""

    def __init__(self, seed: int = 1, window_bytes: int = 256 * 1024) -> None:
        self.links = Links(random.Random(seed), max_delay_ms=5)
        self.loop = NetworkLoop(self.links, random.Random(seed), window_bytes=window_bytes)
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.client = SimProcess("client", host=CLIENT)
        self.server = SimProcess("server", host=SERVER)

    def start(self, process: SimProcess, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.loop.create_task(coroutine, context=process.context)

    def run(self, process: SimProcess, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(self.start(process, coroutine))

    def advance(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def end_server(self, *, power_loss: bool) -> None:
        self.server.kill()
        if power_loss:
            self.loop.streams.power_off(SERVER)
        self.loop.streams.end_process(self.server)


class Recorder(asyncio.Protocol):
    """Records the calls that it receives."""

    transport: asyncio.Transport

    def __init__(self, events: list[object]) -> None:
        self.events = events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = as_type(transport, asyncio.Transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.events.append(data)

    def eof_received(self) -> bool:
        self.events.append("end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines()
    yield made
    made.loop.close()
    assert not made.errors


def _listen(machines: Machines, events: list[object]) -> Recorder:
    """One server that records everything; returns its protocol for the newest connection."""
    newest = Recorder(events)

    async def listen() -> None:
        await machines.loop.create_server(lambda: newest, None, PORT)

    machines.run(machines.server, listen())
    return newest


def _connect(machines: Machines, events: list[object]) -> Recorder:
    async def connect() -> Recorder:
        _, protocol = await machines.loop.create_connection(
            lambda: Recorder(events), address_of(SERVER), PORT
        )
        assert isinstance(protocol, Recorder)
        return protocol

    found = machines.run(machines.client, connect())
    assert isinstance(found, Recorder)
    return found


def _joined(machines: Machines) -> tuple[Recorder, list[object], Recorder, list[object]]:
    """Both ends, and the calls that each has received since they were connected."""
    at_client: list[object] = []
    at_server: list[object] = []
    server = _listen(machines, at_server)
    client = _connect(machines, at_client)
    machines.advance(0.1)
    assert at_client == at_server == ["made"]
    at_client.clear()
    at_server.clear()
    return client, at_client, server, at_server


def test_address_of_a_machine_is_numeric_and_parsed_back() -> None:
    assert address_of(3) == "10.0.0.3"
    assert host_of(address_of(70_000)) == 70_000
    with pytest.raises(OSError, match="no simulated machine"):
        host_of("localhost")


def test_bytes_arrive_in_order_despite_losses_delays_and_repetitions(machines: Machines) -> None:
    machines.links.straggle, machines.links.duplicate = 0.3, 0.3
    client, _, _, at_server = _joined(machines)
    sent = b""
    for number in range(200):
        data = b"%d," % number
        sent += data
        client.transport.write(data)
        machines.links.drop = 0.02 if number % 50 < 25 else 0.0
        machines.advance(0.003)
    machines.links.drop = 0.0
    machines.advance(10)
    received = b"".join(events for events in at_server if isinstance(events, bytes))
    assert received == sent


def test_bytes_written_in_one_turn_arrive_together(machines: Machines) -> None:
    client, _, _, at_server = _joined(machines)
    client.transport.write(b"one")
    client.transport.writelines([b"two", b"three"])
    machines.advance(0.1)
    assert at_server == [b"onetwothree"]


def test_closing_sends_the_rest_and_then_the_end(machines: Machines) -> None:
    client, at_client, server, at_server = _joined(machines)
    client.transport.write(bytes(1_000_000))
    client.transport.close()
    machines.advance(1)
    assert sum(len(events) for events in at_server if isinstance(events, bytes)) == 1_000_000
    assert at_server[-2:] == ["end", "lost"]
    assert at_client[-1] == "lost"
    assert server.transport.is_closing()


def test_connection_is_refused_without_a_listener_and_until_a_bound_address_serves(
    machines: Machines,
) -> None:
    async def bind() -> Any:
        return await machines.loop.create_server(lambda: Recorder([]), None, PORT, start_serving=False)

    with pytest.raises(ConnectionRefusedError):
        _connect(machines, [])
    bound = machines.run(machines.server, bind())
    assert bound.sockets[0].getsockname() == (address_of(SERVER), PORT)
    with pytest.raises(ConnectionRefusedError):
        _connect(machines, [])
    with pytest.raises(OSError, match="in use"):
        machines.run(machines.server, bind())
    machines.run(machines.server, bound.start_serving())
    events: list[object] = []
    _connect(machines, events)
    bound.close()
    assert events == ["made"]
    with pytest.raises(ConnectionRefusedError):
        _connect(machines, [])


def test_connecting_to_a_machine_without_power_waits_until_it_is_up(machines: Machines) -> None:
    machines.loop.streams.power_off(SERVER)
    events: list[object] = []

    async def connect() -> None:
        async with asyncio.timeout(2):
            await machines.loop.create_connection(lambda: Recorder(events), address_of(SERVER), PORT)

    with pytest.raises(TimeoutError):
        machines.run(machines.client, connect())
    waiting = machines.start(machines.client, connect())
    machines.advance(0.5)
    machines.loop.streams.power_on(SERVER)
    _listen(machines, [])
    machines.loop.run_until_complete(waiting)
    assert events == ["made"]


def test_killed_process_ends_its_connections_and_what_it_left_unread_resets_them(machines: Machines) -> None:
    _, at_client, _, _ = _joined(machines)
    machines.end_server(power_loss=False)
    machines.advance(1)
    assert at_client == ["end", "lost"]

    unread = Machines()
    client, at_client, server, _ = _joined(unread)
    server.transport.pause_reading()
    client.transport.write(b"unread")
    unread.advance(0.1)
    unread.end_server(power_loss=False)
    unread.advance(1)
    assert at_client == ["ConnectionResetError"]
    unread.loop.close()


def test_machine_that_lost_power_is_silent_until_it_is_up_and_written_to(machines: Machines) -> None:
    client, at_client, _, at_server = _joined(machines)
    machines.end_server(power_loss=True)
    client.transport.write(b"anybody?")
    machines.advance(20)
    assert at_client == []
    machines.loop.streams.power_on(SERVER)
    machines.advance(5)
    assert at_client == ["ConnectionResetError"]
    assert at_server == []


def test_half_open_connection_is_detected_by_the_side_that_writes(machines: Machines) -> None:
    client, at_client, _, _ = _joined(machines)
    machines.links.cut([SERVER], [CLIENT])
    machines.end_server(power_loss=False)
    machines.advance(1)
    machines.links.heal()
    machines.advance(10)
    at_client.clear()  # the end of the stream, which was sent again; a reset would have been lost
    client.transport.write(b"?")
    machines.advance(1)
    assert at_client in ([], ["ConnectionResetError"])


def test_cut_delays_everything_until_it_is_healed(machines: Machines) -> None:
    client, at_client, server, at_server = _joined(machines)
    machines.links.cut([CLIENT], [SERVER])
    client.transport.write(b"late")
    server.transport.write(b"in time")
    machines.advance(5)
    assert (at_client, at_server) == ([b"in time"], [])
    machines.links.heal()
    machines.advance(3)
    assert at_server == [b"late"]


def test_paused_process_reads_nothing_and_its_machine_still_accepts(machines: Machines) -> None:
    events: list[object] = []
    _listen(machines, events)
    machines.server.pause()
    client = _connect(machines, [])
    client.transport.write(b"held")
    machines.advance(5)
    assert events == []
    machines.server.resume(machines.loop)
    machines.advance(0.1)
    assert events == ["made", b"held"]


def test_peer_that_does_not_read_pauses_the_writer_and_reading_resumes_it() -> None:
    machines = Machines(window_bytes=10_000)
    client, at_client, server, at_server = _joined(machines)
    server.transport.pause_reading()
    client.transport.write(bytes(50_000))
    assert at_client == []
    client.transport.write(bytes(50_000))
    machines.advance(1)
    assert at_client == ["pause"]
    assert client.transport.get_write_buffer_size() == 90_000
    server.transport.resume_reading()
    machines.advance(1)
    assert at_client == ["pause", "resume"]
    assert sum(len(as_type(one, bytes)) for one in at_server) == 100_000
    machines.loop.close()


def test_failing_protocol_loses_its_connection_and_the_loop_is_notified() -> None:
    machines = Machines()
    client, at_client, server, at_server = _joined(machines)
    server.data_received = _fail  # type: ignore[method-assign]
    client.transport.write(b"x")
    machines.advance(1)
    assert [type(error["exception"]) for error in machines.errors] == [AssertionError]
    assert at_server == ["AssertionError"]
    assert at_client == ["end", "lost"]
    machines.loop.close()


def _fail(data: bytes) -> None:
    raise AssertionError(data)


def test_lossy_links_delay_and_occasionally_reset() -> None:
    resets = arrived = 0
    for seed in range(30):
        machines = Machines(seed)
        client, at_client, _, at_server = _joined(machines)
        machines.links.drop = 0.3
        for _ in range(10):
            if not client.transport.is_closing():
                client.transport.write(b"x")
            machines.advance(1)
        resets += "ConnectionResetError" in at_client
        arrived += sum(len(events) for events in at_server if isinstance(events, bytes))
        machines.loop.close()
    assert 0 < resets < 20
    assert arrived > 200


# --- the product's own connections ----------------------------------------------------------------------


class Echo:
    """A session that sends every line back."""

    need_bytes = 1
    stalled = False
    lane: object = BULK

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection
        self.lost = False

    def receive(self, data: memoryview) -> int:
        self._connection.write([bytes(data)])
        return len(data)

    def connection_lost(self) -> None:
        self.lost = True


def _serve(machines: Machines, factory: Callable[[StreamConnection], Any]) -> StreamServer:
    async def serve() -> StreamServer:
        server = StreamServer(
            StreamRuntime(machines.loop),
            None,
            PORT,
            quota=ConnectionQuota(2**31 - 1, 2),
            idle_timeout_ms=60_000,
        )
        await server.start(factory)
        return server

    found = machines.run(machines.server, serve())
    assert isinstance(found, StreamServer)
    return found


def test_stream_server_of_the_product_echoes_refuses_and_stops(machines: Machines) -> None:
    server = _serve(machines, Echo)
    events: list[object] = []
    clients = [_connect(machines, events) for _ in range(2)]
    refused: list[object] = []
    _connect(machines, refused)
    for client in clients:
        client.transport.write(bytes(300_000))
    machines.advance(5)
    assert refused == ["made", "end", "lost"]
    assert sum(len(one) for one in events if isinstance(one, bytes)) == 600_000
    assert server.connection_count == 2
    machines.run(machines.server, server.stop())
    machines.advance(1)
    assert events[-2:] == ["end", "lost"]
    with pytest.raises(ConnectionRefusedError):
        _connect(machines, [])


def test_network_of_kafka_client_times_out_on_a_cut_and_without_responses(machines: Machines) -> None:
    class Silent(Echo):
        def receive(self, data: memoryview) -> int:
            return len(data)

    _serve(machines, Silent)

    async def ask() -> float:
        network = AsyncioNetwork()
        began_ms = network.now_ms()
        with pytest.raises(TimeoutError):
            channel = await network.connect(Address(address_of(SERVER), PORT), began_ms + 3000)
            with contextlib.closing(channel):
                await channel.send(b"hello", began_ms + 3000)
                await channel.receive(1000, began_ms + 3000)
        return network.now_ms() - began_ms

    assert machines.run(machines.client, ask()) == 3000
    machines.links.cut([SERVER], [CLIENT])
    assert machines.run(machines.client, ask()) == 3000


def test_connection_that_is_aborted_while_it_is_made_is_lost_once(machines: Machines) -> None:
    at_client: list[object] = []
    at_server: list[object] = []

    class Refusing(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.abort()

    async def listen() -> None:
        await machines.loop.create_server(lambda: Refusing(at_server), None, PORT)

    machines.run(machines.server, listen())
    _connect(machines, at_client)
    machines.advance(1)
    assert at_server == ["made", "lost"]
