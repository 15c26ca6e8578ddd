"""Listening sockets: which connections are served, and how long one may stay idle.

A connection over the limit of all waits for its place (:mod:`.connection_quota`). One over another limit is
closed at once, with one log line for all that are refused between two sweeps. The bytes of connections are
handled elsewhere (:mod:`.tcp`).
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from pykraft.runtime.network.connection_quota import ConnectionQuota
from pykraft.runtime.network.tcp import (
    OnUnreadable,
    SessionFactory,
    StreamConnection,
    StreamRuntime,
    StreamSession,
)
from pykraft.runtime.turns import BULK

if TYPE_CHECKING:
    from asyncio import Future, Server, TimerHandle

logger = logging.getLogger(__name__)


def bind_failure(error: OSError) -> str:
    """Why an address cannot be bound, without the event loop's prefix."""
    return (error.strerror or str(error)).rpartition(": ")[2]


class StreamServer:
    """A listening socket and its connections, with limits on their number and idle time.

    ``quota`` is shared by the listeners of a broker; ``is_exempt``: connections of this one do not wait.
    """

    def __init__(
        self,
        runtime: StreamRuntime,
        host: str | None,
        port: int,
        *,
        quota: ConnectionQuota,
        idle_timeout_ms: int,
        is_exempt: bool = False,
    ) -> None:
        self._runtime = runtime
        self._host = host
        self._port = port
        self._factory: SessionFactory = _refuse
        self._on_unreadable: OnUnreadable | None = None
        self._quota = quota
        self._is_exempt = is_exempt
        self._sweep_s = max(0.05, min(2.0, idle_timeout_ms / 4000))
        self._idle_s = idle_timeout_ms / 1000 + self._sweep_s
        self._connections: dict[StreamConnection, None] = {}
        self._server: Server | None = None
        self._sweeper: TimerHandle | None = None
        self._refused = 0
        self._waiting = 0
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
        server: Any = self._server  # its sockets are a tuple, or uvloop's list
        self.port = server.sockets[0].getsockname()[1]
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

    def _size_buffers(self, sock: socket.socket | None) -> None:
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            for option, size_bytes in self._runtime.buffer_sizes:
                if size_bytes >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)

    def _accept(self, connection: StreamConnection) -> StreamSession:
        address = connection.peer[0]
        self._connections[connection] = None
        reason = self._refusal(address)
        if reason is not None:
            if self._refused == 0:
                logger.warning(
                    "refusing connections, %s: %d open here; one is from %s",
                    *(reason, len(self._connections) - 1, address),
                )
            self._refused += 1
            connection.close()
            return _UnservedSession()
        self._size_buffers(connection.sock)
        if self._quota.enter(
            connection, address, partial(self._admit, connection), is_exempt=self._is_exempt
        ):
            return self._factory(connection)
        if not self._waiting:
            logger.warning("max.connections is reached: new connections wait; one is from %s", address)
        self._waiting += 1
        connection.wait_for_place()
        return _UnservedSession()

    def _admit(self, connection: StreamConnection) -> None:
        """A connection that waited has a place."""
        if not connection.closed:
            connection.take_place(self._factory(connection))

    def _refusal(self, address: str) -> str | None:
        """The limit that the newest connection exceeds, if any."""
        files = self._runtime.files
        if files is not None and not files.may_stay():
            return f"the process may open only {files.limit} files"
        return self._quota.find_objection(address, is_exempt=self._is_exempt)

    def _lost(self, connection: StreamConnection) -> None:
        self._connections.pop(connection, None)
        self._quota.leave(connection)
        if self._drained is not None and not self._connections and not self._drained.done():
            self._drained.set_result(None)

    def _sweep(self) -> None:
        runtime = self._runtime
        # Not a count: all servers of a loop change it.
        now_s = runtime.tick = runtime.loop.time()
        if self._refused:
            logger.warning("refused %d connections", self._refused)
            self._refused = 0
        self._waiting = 0
        for connection in list(self._connections):
            if connection.last_tick < now_s - self._idle_s:
                connection.close()
            elif connection.last_tick < now_s - 1.5 * self._sweep_s:
                connection.release_memory()
        self._sweeper = runtime.loop.call_later(self._sweep_s, self._sweep)


class _UnservedSession:
    """The session of a connection that is being closed, or waits to be served."""

    need_bytes = 1
    stalled = False
    lane: object = BULK

    def receive(self, data: memoryview) -> int:
        return len(data)

    def connection_lost(self) -> None:
        return


def _refuse(connection: StreamConnection) -> StreamSession:
    return _UnservedSession()
