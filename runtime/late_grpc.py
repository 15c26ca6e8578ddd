"""gRPC that is imported when it is needed: a node that is alone in its quorum starts without it.

The import takes as long as a tenth of such a start. It is done by :meth:`LateGrpcServer.start`, in a thread,
since the node may serve clients by then. Until then a socket of this process holds the address: the one that
is first has it. Connections wait in its queue, are reset when gRPC takes over, and made again by other nodes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

from pykraft.runtime.own_calls import OwnCalls
from pykraft.runtime.rpc import RpcHandler, RpcServer, RpcTransport
from pykraft.runtime.rpc_limits import ServerLimits
from pykraft.runtime.tasks import FatalHandler

if TYPE_CHECKING:
    from types import ModuleType


_SWITCH_S: Final = 0.0005
_USUAL_SWITCH_S: Final = sys.getswitchinterval()
_LACKING: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""A name may have several addresses, such as an IPv6 one that this machine lacks; gRPC needs only one."""


class LateGrpcServer:
    """The serving side, on one address. What is registered serves this node's own calls, too."""

    def __init__(self, own: OwnCalls, limits: ServerLimits | None = None) -> None:
        self._own = own
        self._limits = limits
        self._handlers: dict[str, RpcHandler] = {}
        self._address = ("", 0)
        self._holders: list[socket.socket] = []
        self._server: RpcServer | None = None

    def register(self, method: str, handler: RpcHandler) -> None:
        self._handlers[method] = handler
        self._own.register(method, handler)

    async def bind(self, host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        lacking: OSError | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            try:
                self._holders.append(_listen(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in _LACKING:
                    self._release()
                    raise OSError(os.strerror(error.errno or 0).lower()) from error
                lacking = error
            else:
                port = self._holders[0].getsockname()[1]
        if not self._holders and lacking is not None:
            raise OSError(os.strerror(lacking.errno or 0).lower()) from lacking
        self._address = host, port
        return port

    async def start(self) -> None:
        grpc_rpc = await asyncio.get_running_loop().run_in_executor(None, _import_beside_the_loop)
        server: RpcServer = grpc_rpc.GrpcServer(self._limits)
        self._server = server
        for method, handler in self._handlers.items():
            server.register(method, handler)
        self._release()
        await server.bind(*self._address)
        await server.start()

    async def stop(self, grace_ms: int) -> None:
        self._release()
        if self._server is not None:
            await self._server.stop(grace_ms)

    def _release(self) -> None:
        for holder in self._holders:
            holder.close()
        self._holders.clear()


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holder.bind(address)
        holder.listen()
    except OSError:
        holder.close()
        raise
    return holder


def make_grpc_transport(on_fatal: FatalHandler) -> RpcTransport:
    """The calling side."""
    transport: RpcTransport = _import_grpc().GrpcTransport(on_fatal)
    return transport


def _import_beside_the_loop() -> ModuleType:
    """Import in a worker thread. The loop gets the interpreter back as soon as it has something to do."""
    sys.setswitchinterval(_SWITCH_S)
    try:
        return _import_grpc()
    finally:
        sys.setswitchinterval(
            _USUAL_SWITCH_S
        )  # not what it was: another node of this process may import, too


def _import_grpc() -> ModuleType:
    from pykraft.runtime import grpc_rpc  # a tenth of a start, see above

    return grpc_rpc
