"""The HTTP server of one node: the adapter between aiohttp and what it shows.

The address is bound before the node starts, so that one that is in use ends the start, and served as soon as
aiohttp has been imported, which happens in a thread: a node that takes long to recover can be asked how it is
doing. There is no authentication: who may ask is up to :mod:`pykraft.node.web.guard`, and to those who let
others reach the address.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Final

from pykraft.configuration.keys import ConfigError
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.node.node import Node
from pykraft.runtime.address import Address
from pykraft.runtime.clock import SystemClock, monotonic_us
from pykraft.runtime.loop_stalls import LoopStalls
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

NEEDED: Final = ("aiohttp", "jinja2", "prometheus_client")
_BACKLOG: Final = 128
_CLOSE_TIMEOUT_S: Final = 1.0


def serve_http(config: ServerConfig, node: Node, until_closed: AsyncExitStack) -> None:
    """Serve what ``pykraft.http.listener`` asks for, if it is set; ``node`` may be started later.

    :class:`ConfigError` if what serves it is not installed, :class:`StartError` if the address is in use.
    """
    address = config.http_listener
    if address is not None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            needed = " and ".join(missing)
            raise ConfigError(f"pykraft.http.listener needs {needed}: pip install 'pykraft[web]'")
        until_closed.push_async_callback(WebServer(node, address, config.http_hosts).stop)


class WebServer:
    """The server of one node. ``hosts``: the names it answers to, beside IP addresses and localhost."""

    def __init__(self, node: Node, address: Address, hosts: Iterable[str]) -> None:
        self.node = node
        self.hosts = hosts
        self.stalls = LoopStalls(asyncio.get_running_loop().call_later, monotonic_us)
        self._clock = SystemClock()
        self._socket = _bind(address)
        self._serving = AsyncExitStack()
        self._tasks = TaskSupervisor(_log_failure)
        self._starting = self._tasks.start(self._start(), "web-server")

    async def _start(self) -> None:
        routes = await asyncio.get_running_loop().run_in_executor(
            None, importlib.import_module, "pykraft.node.web.routes"
        )
        await routes.serve(self, self._socket, _BACKLOG, _CLOSE_TIMEOUT_S, self._serving)
        self.stalls.start()
        logger.info("metrics and console are served at http://%s/", self.address)

    async def started(self) -> None:
        """Wait until it serves."""
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """Close all connections; the address is free afterwards."""
        await self._tasks.close()
        self.stalls.stop()
        await self._serving.aclose()
        self._socket.close()

    @property
    def address(self) -> Address:
        """With the port that was chosen, if it was 0."""
        host, port = self._socket.getsockname()[:2]
        return Address(host, port)

    def now_ms(self) -> int:
        """Monotonic."""
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def _log_failure(error: BaseException) -> None:
    """Log an error; it does not end the node, since metrics and console only show."""
    logger.error("metrics and console are not served: %s", error, exc_info=error)


def _bind(address: Address) -> socket.socket:
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, number)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
        return bound
    except OSError as error:
        raise StartError(f"cannot listen on pykraft.http.listener {address}: {error}") from None
