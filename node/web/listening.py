"""Accepts connections for aiohttp: a bounded number, each for a bounded time.

What listens here must not use up the files of the broker, and who says nothing must not keep others out for
long.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS: Final = 128
CONNECTION_S: Final = 300
"""Prometheus and browsers connect again."""


async def listen(runner: web.AppRunner, bound: socket.socket, backlog: int) -> asyncio.Server:
    """Serve what ``runner`` has set up on a socket that is bound."""
    loop, make = asyncio.get_running_loop(), runner.server
    assert make is not None, "the runner is not set up"

    def accept() -> asyncio.BaseProtocol:
        if len(make.connections) >= MAX_CONNECTIONS:
            return _Refusal()
        connection = make()
        loop.call_later(CONNECTION_S, connection.close)
        return connection

    return await loop.create_server(accept, sock=bound, backlog=backlog)


class _Refusal(asyncio.Protocol):
    """Closes a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
