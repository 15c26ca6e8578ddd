"""TCP between simulated machines: ``create_server`` and ``create_connection`` of a loop in virtual time.

Machines are numbered and have one address each. A connection carries bytes in order over the same links as
all other messages. A lost packet is sent again, so a loss is a delay, and occasionally a reset; a cut stops
all bytes until it is healed, without an error. A process that dies resets its connections; a machine that
loses power sends nothing until it is up again and receives a packet of a connection that it does not know.
Callbacks run in the process that owns the end of the connection (:mod:`.stream_end`): a paused process reads
nothing while its machine still accepts connections and bytes for it.

No code here looks at the bytes.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykraft.runtime.simulated.processes import ProcessLoop, SimProcess, current_process
from pykraft.runtime.simulated.stream_end import StreamEnd

if TYPE_CHECKING:
    from pykraft.runtime.simulated.links import Links

LOCAL_DELAY_S = 0.0001
"""The delay from a machine to itself, where nothing is lost."""

_SYN_RETRY_S = 1.0
_RESET_CHANCE = 0.05
_FIRST_FREE_PORT = 32768


def address_of(host: int) -> str:
    """The numeric address of a machine."""
    return f"10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}"


def host_of(address: str) -> int:
    """The machine at an address. :class:`socket.gaierror` if it is not one of this network."""
    parts = address.split(".")
    if len(parts) != 4 or parts[0] != "10" or not all(part.isdigit() for part in parts):
        raise socket.gaierror(socket.EAI_NONAME, f"{address} is no simulated machine")
    return int(parts[1]) << 16 | int(parts[2]) << 8 | int(parts[3])


class StreamNetwork:
    """All listeners and connections. ``window_bytes`` may be in flight or unread in each direction.

    ``on_event`` is called for every arrival, with a kind, sender, receiver and a size in bytes.
    """

    def __init__(
        self,
        loop: ProcessLoop,
        links: Links,
        rng: random.Random,
        *,
        window_bytes: int = 256 * 1024,
    ) -> None:
        self.loop = loop
        self.links = links
        self.window_bytes = window_bytes
        self._rng = rng
        self._outside = contextvars.copy_context()
        self.on_event: Callable[[str, int, int, int], None] | None = None
        self.stalled: set[tuple[int, int]] = set()
        """Cuts of connections alone, from a sender to a receiver: calls between the machines pass."""
        self._listeners: dict[tuple[int, int], SimStreamServer] = {}
        self._ends: dict[SimProcess, dict[StreamEnd, None]] = {}
        self._down: set[int] = set()
        self._next_port = _FIRST_FREE_PORT

    # --- machines ---------------------------------------------------------------------------------------

    def power_on(self, host: int) -> None:
        """The machine is up: it responds to packets from now on, if only by a reset."""
        self._down.discard(host)

    def power_off(self, host: int) -> None:
        """The machine is down: it responds to no packet."""
        self._down.add(host)

    def end_process(self, process: SimProcess) -> None:
        """Close what a process had open, with a reset to the peers unless its machine has lost power."""
        self._listeners = {
            address: server for address, server in self._listeners.items() if server.process is not process
        }
        for end in self._ends.pop(process, {}):
            end.process_ended(silently=process.host in self._down)

    # --- the calls of the loop --------------------------------------------------------------------------

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], port: int, serving: bool
    ) -> SimStreamServer:
        process = self._current()
        port = port or self.free_port()
        if (process.host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        server = self._listeners[process.host, port] = SimStreamServer(self, process, factory, port, serving)
        return server

    def release(self, server: SimStreamServer) -> None:
        address = server.process.host, server.port
        if self._listeners.get(address) is server:
            del self._listeners[address]

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: int, port: int) -> StreamEnd:
        """A new connection of the current process, with the protocol that ``factory`` returns."""
        process = self._current()
        here = StreamEnd(
            self, process, (address_of(process.host), self.free_port()), (address_of(host), port), host
        )
        answered: asyncio.Future[None] = self.loop.create_future()
        self._send_syn(here, host, port, answered, _SYN_RETRY_S)
        try:
            await answered
        except asyncio.CancelledError:
            here.abort()
            raise
        here.join(factory())
        return here

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    @staticmethod
    def _current() -> SimProcess:
        process = current_process()
        assert process is not None, "only a simulated process has a machine with an address"
        return process

    def _send_syn(
        self, here: StreamEnd, host: int, port: int, answered: asyncio.Future[None], retry_s: float
    ) -> None:
        if answered.done() or not here.process.alive:
            return
        delay_s = self.delay_s(here.process.host, host)
        if delay_s is None or host in self._down:
            self.later(retry_s, self._send_syn, here, host, port, answered, 2 * retry_s)
        else:
            self.later(delay_s, self._take_syn, here, host, port, answered, retry_s)

    def _take_syn(
        self, here: StreamEnd, host: int, port: int, answered: asyncio.Future[None], retry_s: float
    ) -> None:
        """The machine answers for the process: it accepts, or refuses where no process listens."""
        if answered.done() or not here.process.alive:
            return
        server = self._listeners.get((host, port))
        refused = server is None or not server.serving
        if server is not None and not refused and here.peer is None:
            here.peer = StreamEnd(self, server.process, here.peername, here.sockname, here.process.host)
            here.peer.peer = here
            self.event("connect", here.process.host, host, port)
            self.loop.call_soon(server.accept, here.peer, context=server.process.context)
        delay_s = self.delay_s(host, here.process.host)
        if delay_s is None:
            self.later(retry_s, self._send_syn, here, host, port, answered, 2 * retry_s)
        else:
            self.later(delay_s, self._answer, here, answered, refused)

    def _answer(self, here: StreamEnd, answered: asyncio.Future[None], refused: bool) -> None:
        if answered.done() or not here.process.alive:
            return
        if refused:
            self.closed(here)
            answered.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))
        else:
            answered.set_result(None)

    # --- for the ends -----------------------------------------------------------------------------------

    def opened(self, end: StreamEnd) -> None:
        self._ends.setdefault(end.process, {})[end] = None

    def closed(self, end: StreamEnd) -> None:
        ends = self._ends.get(end.process)
        if ends is not None:
            ends.pop(end, None)

    def is_down(self, host: int) -> bool:
        return host in self._down

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.links.cuts or (sender, receiver) in self.stalled

    def delay_s(self, sender: int, receiver: int) -> float | None:
        """The delay of a packet; None if it is lost."""
        if sender == receiver:
            return LOCAL_DELAY_S
        if (sender, receiver) in self.stalled:
            return None
        delays = self.links.deliveries(sender, receiver, may_be_slow=False)
        return min(delays) / 1000 if delays else None

    def is_reset(self, sender: int, receiver: int) -> bool:
        """Whether a lost packet resets the connection, as if a router had dropped its state."""
        return not self.is_cut(sender, receiver) and self._rng.random() < _RESET_CHANCE

    def later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback`` later, outside any process."""
        self.loop.call_later(delay_s, callback, *args, context=self._outside)

    def event(self, kind: str, sender: int, receiver: int, size_bytes: int) -> None:
        if self.on_event is not None:
            self.on_event(kind, sender, receiver, size_bytes)


class _BoundSocket:
    """The part of a socket that returns its address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimStreamServer(asyncio.AbstractServer):
    """An address that a process has bound; peers are refused until it serves."""

    def __init__(
        self,
        network: StreamNetwork,
        process: SimProcess,
        factory: Callable[[], asyncio.BaseProtocol],
        port: int,
        serving: bool,
    ) -> None:
        self._network = network
        self.process = process
        self.port = port
        self.serving = serving
        self._factory = factory
        self.sockets = (_BoundSocket((address_of(process.host), port)),)

    def accept(self, end: StreamEnd) -> None:
        """Called in the process."""
        if not self.serving:
            end.abort()
            return
        end.join(self._factory())

    def close(self) -> None:
        self.serving = False
        self._network.release(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self.serving

    async def start_serving(self) -> None:
        self.serving = True

    async def serve_forever(self) -> None:
        raise NotImplementedError("a simulated server serves as long as the loop runs")

    async def wait_closed(self) -> None:
        """Returns at once: there is nothing to wait for."""


class NetworkLoop(ProcessLoop):
    """A loop of processes that reach each other over streams."""

    def __init__(self, links: Links, rng: random.Random, **options: Any) -> None:
        super().__init__()
        self.streams = StreamNetwork(self, links, rng, **options)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        start_serving: bool = True,
        **_: Any,
    ) -> SimStreamServer:
        """A server of the current process, on the one address of its machine, for any ``host``."""
        return self.streams.listen(protocol_factory, port, start_serving)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> tuple[StreamEnd, asyncio.BaseProtocol]:
        """A connection of the current process. :class:`OSError` as of a socket; has no time limit."""
        end = await self.streams.connect(protocol_factory, host_of(host), port)
        return end, end.get_protocol()
