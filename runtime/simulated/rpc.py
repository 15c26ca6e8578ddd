"""The simulation's counterpart of the gRPC adapter: calls between simulated machines.

A call to an address without a server is refused, a call to a paused process waits in its socket, and a lost
call ends at its deadline.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykraft.runtime.address import Address
from pykraft.runtime.rpc import RpcFailure, RpcHandler
from pykraft.runtime.simulated.streams import host_of

if TYPE_CHECKING:
    from pykraft.runtime.simulated.links import Links
    from pykraft.runtime.simulated.processes import ProcessLoop, SimProcess

_FETCHES = ("Fetch", "FetchSnapshot")
"""The calls with which a replica fetches the metadata log."""

OnReply = Callable[[bytes | RpcFailure], None]


class RpcNetwork:
    """All servers. ``on_call`` gets each call that arrives: its name, sender, receiver and checksum.

    ``on_bug`` is called with the error of a handler.
    """

    def __init__(
        self,
        loop: ProcessLoop,
        links: Links,
        on_call: Callable[[str, int, int, int], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self.loop = loop
        self.links = links
        self.on_call = on_call
        self.on_bug = on_bug
        self.servers: dict[tuple[int, int], SimServer] = {}
        self.starved: list[int] = []
        """Machines whose fetches of the metadata log are lost, while everything else that they send passes.
        """
        self._outside = contextvars.copy_context()

    def transport(self, process: SimProcess) -> SimTransport:
        return SimTransport(self, process)

    def server(self, process: SimProcess) -> SimServer:
        return SimServer(self, process)

    def later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback`` later, outside any process."""
        self.loop.call_later(delay_ms / 1000, callback, *args, context=self._outside)


class SimServer:
    """The methods that one process serves at one address."""

    def __init__(self, network: RpcNetwork, process: SimProcess) -> None:
        self._network = network
        self.process = process
        self.handlers: dict[str, RpcHandler] = {}
        self.serving = False

    def register(self, method: str, handler: RpcHandler) -> None:
        self.handlers[method] = handler

    async def bind(self, host: str, port: int) -> int:
        address = self.process.host, port
        holder = self._network.servers.get(address)
        if holder is not None and holder.process.alive:
            raise OSError(errno.EADDRINUSE, "address already in use")
        self._network.servers[address] = self
        return port

    async def start(self) -> None:
        self.serving = True

    async def stop(self, grace_ms: int) -> None:
        self.serving = False
        servers = self._network.servers
        for address in [address for address, server in servers.items() if server is self]:
            del servers[address]


@dataclass(frozen=True, slots=True)
class SimCall:
    """A :class:`~pykraft.runtime.rpc.PendingCall`. Its cancellation may be lost, as any message."""

    cancel: Callable[[], None]


class SimTransport:
    """The calling side of one process."""

    def __init__(self, network: RpcNetwork, process: SimProcess) -> None:
        self._network = network
        self._process = process

    def send(self, to: Address, method: str, payload: bytes, deadline_ms: int, on_reply: OnReply) -> SimCall:
        network, loop = self._network, self._network.loop
        sender, receiver = self._process.host, host_of(to.host)
        name = method.rpartition("/")[2]
        answered = False
        handling: list[asyncio.Future[bytes]] = []
        is_given_up = False

        def answer(outcome: bytes | RpcFailure) -> None:
            nonlocal answered
            if not answered:
                answered = True
                on_reply(outcome)

        def arrive() -> None:
            if is_given_up:
                return
            server = network.servers.get((receiver, to.port))
            is_reached = server is not None and (server.serving or server.process is self._process)
            handler = server.handlers.get(method) if server is not None and is_reached else None
            if server is None or handler is None or not server.process.alive:
                reply(RpcFailure("refused"))
                return
            network.on_call(name, sender, receiver, zlib.crc32(payload))
            loop.call_soon(handle, handler, context=server.process.context)

        def handle(handler: RpcHandler) -> None:
            handled = asyncio.ensure_future(handler(payload))
            handling.append(handled)
            handled.add_done_callback(answered_by_handler)

        def cancel() -> None:
            nonlocal answered
            if not answered:
                answered = True
                for delay_ms in network.links.deliveries(sender, receiver):
                    network.later(delay_ms, give_up)

        def give_up() -> None:
            """The receiver has been notified that the caller has given up."""
            nonlocal is_given_up
            is_given_up = True
            for handled in handling:
                handled.cancel()

        def answered_by_handler(handled: asyncio.Future[bytes]) -> None:
            if handled.cancelled():
                reply(RpcFailure("cancelled"))
                return
            error = handled.exception()
            if error is None:
                reply(handled.result())
            elif isinstance(error, Exception):
                network.on_bug(error)
                reply(RpcFailure("the handler failed"))

        def reply(outcome: bytes | RpcFailure) -> None:
            # A broker that is slow to receive the metadata is granted shorter leases than those that the slow
            # responses are meant to test.
            may_be_slow = name not in _FETCHES
            for delay_ms in network.links.deliveries(receiver, sender, may_be_slow=may_be_slow):
                loop.call_later(delay_ms / 1000, answer, outcome, context=self._process.context)

        loop.call_later(deadline_ms / 1000, answer, RpcFailure("deadline"))
        if sender not in network.starved or name not in _FETCHES:
            for delay_ms in network.links.deliveries(sender, receiver):
                network.later(delay_ms, arrive)
        return SimCall(cancel)

    async def close(self) -> None:
        """Do nothing: no connection is open."""
