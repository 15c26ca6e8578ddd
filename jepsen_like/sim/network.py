"""The simulation's twin of the gRPC adapter: calls between numbered nodes over links that the nemesis owns.

An address is ``sim:<node id>``. A call that arrives at a dead process is refused, one that arrives at a
paused process waits in its socket, one that is lost ends at its deadline.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykraft.runtime.rpc import RpcAddress, RpcFailure, RpcHandler

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.world import World
    from pykraft.jepsen_like.sim.processes import SimProcess

REFUSED_AFTER_MS = 1

_FETCHES = ("Fetch", "FetchSnapshot")
"""How a replica comes by the metadata log."""

OnReply = Callable[[bytes | RpcFailure], None]


class SimServer:
    """The methods one process serves."""

    def __init__(self) -> None:
        self.handlers: dict[str, RpcHandler] = {}

    def register(self, method: str, handler: RpcHandler) -> None:
        self.handlers[method] = handler

    async def bind(self, host: str, port: int) -> int:
        return port

    async def start(self) -> None:
        """Whoever knows the handlers may call them."""

    async def stop(self, grace_ms: int) -> None:
        self.handlers.clear()


class SimTransport:
    """The calling side of one process."""

    def __init__(self, world: World, node_id: int, process: SimProcess) -> None:
        self._world = world
        self._node_id = node_id
        self._process = process

    def send(self, to: RpcAddress, method: str, payload: bytes, deadline_ms: int, on_reply: OnReply) -> None:
        world, loop = self._world, self._world.loop
        sender, receiver = self._node_id, to.port
        name = method.rpartition("/")[2]
        answered = False

        def answer(outcome: bytes | RpcFailure) -> None:
            nonlocal answered
            if not answered:
                answered = True
                on_reply(outcome)

        def give_up() -> None:
            answer(RpcFailure("deadline"))

        def arrive() -> None:
            node = world.nodes[receiver]
            process, server = node.process, node.server
            handler = server.handlers.get(method) if server is not None else None
            if process is None or not process.alive or handler is None:
                reply(RpcFailure("refused"))
                return
            world.note(f"{name} {sender}>{receiver} {zlib.crc32(payload)}")

            def handle() -> None:
                handled = asyncio.ensure_future(handler(payload))
                handled.add_done_callback(answered_by_handler)

            loop.call_soon(handle, context=process.context)

        def answered_by_handler(handled: asyncio.Future[bytes]) -> None:
            if handled.cancelled():
                reply(RpcFailure("cancelled"))
                return
            error = handled.exception()
            if error is None:
                reply(handled.result())
            elif isinstance(error, Exception):
                world.failed(error)
                reply(RpcFailure("the handler failed"))

        def reply(outcome: bytes | RpcFailure) -> None:
            # Who is slow to hear of the metadata is granted less by slow answers than these are about.
            may_be_slow = name not in _FETCHES
            for delay_ms in world.links.deliveries(receiver, sender, may_be_slow=may_be_slow):
                world.events += 1
                loop.call_later(delay_ms / 1000, answer, outcome, context=self._process.context)

        loop.call_later(deadline_ms / 1000, give_up)
        if sender in world.starved and name in _FETCHES:
            return
        for delay_ms in world.links.deliveries(sender, receiver):
            world.events += 1
            world.later(delay_ms, arrive)

    async def close(self) -> None:
        """Nothing is open."""
