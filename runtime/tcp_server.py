"""Listening sockets: how many connections are accepted, and how long one may stay idle.

A connection over a limit is closed at once, with one log line for all that are refused between two sweeps.
The bytes of connections are handled elsewhere (:mod:`.tcp`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykraft.runtime.tcp import OnUnreadable, SessionFactory, StreamConnection, StreamRuntime, StreamSession
from pykraft.runtime.turns import BULK

if TYPE_CHECKING:
    from asyncio import Future, Server, TimerHandle

logger = logging.getLogger(__name__)


def bind_failure(error: OSError) -> str:
    """Why an address cannot be bound, without the event loop's prefix."""
    return (error.strerror or str(error)).rpartition(": ")[2]


class StreamServer:
    """A listening socket and its connections, with limits on their number and idle time."""

    def __init__(
        self,
        runtime: StreamRuntime,
        host: str | None,
        port: int,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        idle_timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._host = host
        self._port = port
        self._factory: SessionFactory = _refuse
        self._on_unreadable: OnUnreadable | None = None
        self.max_connections = max_connections
        """May be changed at any time; open connections are kept."""
        self.max_connections_per_ip = max_connections_per_ip
        """As ``max_connections``."""
        self._sweep_s = max(0.05, min(2.0, idle_timeout_ms / 4000))
        self._idle_s = idle_timeout_ms / 1000 + self._sweep_s
        self._connections: dict[StreamConnection, str] = {}
        self._per_ip: dict[str, int] = {}
        self._server: Server | None = None
        self._sweeper: TimerHandle | None = None
        self._refused = 0
        self._drained: Future[None] | None = None
        self.port = port

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self, factory: SessionFactory) -> int:
        """Bind and listen; returns the port."""
        port = await self.bind()
        await self.start_serving(factory)
        return port

    async def bind(self) -> int:
        """Bind the address; connections are refused until :meth:`start_serving`. Returns the port."""
        loop = self._runtime.loop
        self._server = await loop.create_server(
            lambda: StreamConnection(self._runtime, self._accept, self._lost, self._on_unreadable),
            self._host,
            self._port,
            backlog=1024,
            reuse_address=True,
            start_serving=False,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def start_serving(self, factory: SessionFactory, on_unreadable: OnUnreadable | None = None) -> None:
        """Listen on the address that was bound; each connection gets a session from ``factory``."""
        assert self._server is not None
        self._factory, self._on_unreadable = factory, on_unreadable
        await self._server.start_serving()
        self._sweeper = self._runtime.loop.call_later(self._sweep_s, self._sweep)

    async def stop_listening(self) -> None:
        """Accept no further connection; open ones are kept."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        await self.stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._drained = self._runtime.loop.create_future()
            await self._drained

    def _accept(self, connection: StreamConnection) -> StreamSession:
        address = connection.peer[0]
        count = self._per_ip.get(address, 0)
        self._per_ip[address] = count + 1
        self._connections[connection] = address
        reason = self._refusal(count)
        if reason is not None:
            if self._refused == 0:
                logger.warning(
                    "refusing connections, %s: %d open, %d from %s",
                    *(reason, len(self._connections) - 1, count, address),
                )
            self._refused += 1
            connection.close()
            return _RefusedSession()
        return self._factory(connection)

    def _refusal(self, from_address: int) -> str | None:
        """The limit that the newest connection exceeds, if any; ``from_address`` are open from its
        address.
        """
        if len(self._connections) > self.max_connections:
            return "max.connections is reached"
        if from_address >= self.max_connections_per_ip:
            return "max.connections.per.ip is reached"
        files = self._runtime.files
        if files is not None and not files.may_stay():
            return f"the process may open only {files.limit} files"
        return None

    def _lost(self, connection: StreamConnection) -> None:
        address = self._connections.pop(connection, None)
        if address is not None:
            left = self._per_ip[address] - 1
            if left:
                self._per_ip[address] = left
            else:
                del self._per_ip[address]
        if self._drained is not None and not self._connections and not self._drained.done():
            self._drained.set_result(None)

    def _sweep(self) -> None:
        runtime = self._runtime
        # Not a count: all servers of a loop change it.
        now_s = runtime.tick = runtime.loop.time()
        if self._refused:
            logger.warning("refused %d connections", self._refused)
            self._refused = 0
        for connection in list(self._connections):
            if connection.last_tick < now_s - self._idle_s:
                connection.close()
            elif connection.last_tick < now_s - 1.5 * self._sweep_s:
                connection.release_memory()
        self._sweeper = runtime.loop.call_later(self._sweep_s, self._sweep)


class _RefusedSession:
    """The session of a connection that is already being closed."""

    need_bytes = 1
    stalled = False
    lane: object = BULK

    def receive(self, data: memoryview) -> int:
        return len(data)

    def connection_lost(self) -> None:
        return


def _refuse(connection: StreamConnection) -> StreamSession:
    return _RefusedSession()
