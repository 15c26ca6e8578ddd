"""gRPC that is imported when it is needed: a node that is alone in its quorum calls only itself while it starts.

The import takes a tenth of such a start, and binding gRPC's server as long again. So the server is made by
:meth:`LateGrpcServer.start`, and imported in a thread, since the node may serve clients by then. Until then a
socket of this process holds the address: whoever is first has it, and connections are closed at once, so that
other nodes try again.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from pykraft.runtime.own_calls import OwnCalls
from pykraft.runtime.rpc import RpcHandler, RpcServer, RpcTransport
from pykraft.runtime.tasks import FatalHandler
from pykraft.runtime.tcp_server import bind_failure

if TYPE_CHECKING:
    from types import ModuleType


_SWITCH_S = 0.0005


class LateGrpcServer:
    """The serving side, on one address. What is registered serves this node's own calls, too."""

    def __init__(self, own: OwnCalls) -> None:
        self._own = own
        self._handlers: dict[str, RpcHandler] = {}
        self._address = ("", 0)
        self._holder: asyncio.Server | None = None
        self._server: RpcServer | None = None

    def register(self, method: str, handler: RpcHandler) -> None:
        self._handlers[method] = handler
        self._own.register(method, handler)

    async def bind(self, host: str, port: int) -> int:
        try:
            self._holder = await asyncio.start_server(
                lambda reader, writer: writer.close(), host or "0.0.0.0", port
            )
        except OSError as error:
            raise OSError(bind_failure(error)) from error
        bound: int = self._holder.sockets[0].getsockname()[1]
        self._address = host, bound
        return bound

    async def start(self) -> None:
        grpc_rpc = await asyncio.get_running_loop().run_in_executor(None, _import_beside_the_loop)
        server: RpcServer = grpc_rpc.GrpcServer()
        self._server = server
        for method, handler in self._handlers.items():
            server.register(method, handler)
        await self._release()
        await server.bind(*self._address)
        await server.start()

    async def stop(self, grace_ms: int) -> None:
        await self._release()
        if self._server is not None:
            await self._server.stop(grace_ms)

    async def _release(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.close()
            await holder.wait_closed()


def make_grpc_transport(on_fatal: FatalHandler) -> RpcTransport:
    """The calling side."""
    transport: RpcTransport = _import_grpc().GrpcTransport(on_fatal)
    return transport


def _import_beside_the_loop() -> ModuleType:
    """Import in a worker thread. The loop gets the interpreter back as soon as it has something to do."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return _import_grpc()
    finally:
        sys.setswitchinterval(interval_s)


def _import_grpc() -> ModuleType:
    from pykraft.runtime import grpc_rpc  # a tenth of a start, see above

    return grpc_rpc
