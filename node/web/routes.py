"""The paths of a node's HTTP server. Imported late, because aiohttp and prometheus_client are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from aiohttp import web

from pykraft.node.metrics.exposition import CONTENT_TYPE, expose
from pykraft.node.metrics.scrape import Scrape
from pykraft.node.web.console.app import Console
from pykraft.node.web.console.shown_node import OFF, OwnNode
from pykraft.node.web.guard import guarded
from pykraft.node.web.health import why_not_ready
from pykraft.node.web.listening import listen
from pykraft.runtime.clock import monotonic_us

if TYPE_CHECKING:
    from pykraft.node.web.server import WebServer

_SCRAPES_AT_ONCE: Final = 2


async def serve(
    server: WebServer,
    bound: socket.socket,
    backlog: int,
    close_timeout_s: float,
    until_closed: AsyncExitStack,
) -> None:
    """Serve on a socket that is bound."""
    app = web.Application(client_max_size=2 << 20)
    app.add_routes(_Health(server).routes())
    app.add_routes(_Metrics(server).routes())
    if (shown := OwnNode(server)).mode != OFF:
        Console(shown).add_to(app)
    runner = await guarded(app, server.hosts, handle_signals=False, shutdown_timeout=close_timeout_s)
    until_closed.push_async_callback(runner.cleanup)
    listening = await listen(runner, bound, backlog)
    until_closed.callback(listening.close)


class _Health:
    """``/healthz``: the process lives and its event loop turns; ``/readyz``: it serves."""

    def __init__(self, server: WebServer) -> None:
        self._server = server

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self._live), web.get("/readyz", self._ready)]

    async def _live(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        reason = why_not_ready(self._server.node, self._server.now_ms())
        if reason is None:
            return web.Response(text="ok\n")
        return web.Response(text=f"{reason}\n", status=503)


class _Metrics:
    """``/metrics``: few at once, because each costs the event loop time."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._scrapes = asyncio.Semaphore(_SCRAPES_AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._scrapes.locked():
            return web.Response(text="too many scrapes at once\n", status=503)
        async with self._scrapes:
            server = self._server
            scrape = Scrape(server.node, server.stalls, server.now_ms(), server.wall_ms())
            body = await expose(scrape, monotonic_us)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
