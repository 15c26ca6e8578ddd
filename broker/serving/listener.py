"""A Kafka listener: sockets from ``runtime.tcp``, frames and answer order from ``kafka_protocol.connection``.

It only joins the two; requests go to the given :class:`RequestHandler`.
"""

from __future__ import annotations

from functools import partial
from itertools import count

from pykraft.configuration.settings import Settings, setting
from pykraft.kafka_protocol.connection import MAX_PENDING_RESPONSES, Connection, RequestHandler
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.network.connection_quota import ConnectionQuota
from pykraft.runtime.network.tcp import OnUnreadable, StreamConnection, StreamRuntime
from pykraft.runtime.network.tcp_server import StreamServer, bind_failure

_connection_ids = count(1)


@dataclass(frozen=True, slots=True)
class ListenerLimits(Settings):
    """Limits of connections; ``max_pending_responses`` requests of one connection may be unanswered."""

    max_request_bytes: int = setting("socket.request.max.bytes")
    max_connections: int = setting("max.connections")
    max_connections_per_ip: int = setting("max.connections.per.ip")
    idle_timeout_ms: int = setting("connections.max.idle.ms")
    max_pending_responses: int = MAX_PENDING_RESPONSES

    def make_quota(self) -> ConnectionQuota:
        """For the listeners that have these limits together."""
        return ConnectionQuota(self.max_connections, self.max_connections_per_ip)


class KafkaListener:
    """One named listener of a broker. Port 0 takes a free port, returned by :meth:`start`.

    ``quota``: that of all listeners of the broker, its own if None; ``is_exempt``: from ``max.connections``.
    """

    def __init__(
        self,
        runtime: StreamRuntime,
        host: str | None,
        port: int,
        listener_name: str,
        limits: ListenerLimits | None = None,
        quota: ConnectionQuota | None = None,
        *,
        is_exempt: bool = False,
    ) -> None:
        self.listener_name = listener_name
        self._address = f"{listener_name}://{host or ''}:{port}"
        self._limits = limits or ListenerLimits()
        self.quota = quota or self._limits.make_quota()
        self._server = StreamServer(
            runtime,
            host,
            port,
            quota=self.quota,
            idle_timeout_ms=self._limits.idle_timeout_ms,
            is_exempt=is_exempt,
        )

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def connection_count(self) -> int:
        return self._server.connection_count

    async def start(self, handler: RequestHandler, on_unreadable: OnUnreadable | None = None) -> int:
        """Bind and listen; returns the port."""
        port = await self.bind()
        await self.start_serving(handler, on_unreadable)
        return port

    async def bind(self) -> int:
        """Bind the address, so that it is known, and refuse connections until :meth:`start_serving`.

        :class:`OSError` that names the listener and the reason if it cannot be bound.
        """
        try:
            return await self._server.bind()
        except OSError as error:
            raise OSError(f"cannot listen on {self._address}: {bind_failure(error)}") from error

    async def start_serving(self, handler: RequestHandler, on_unreadable: OnUnreadable | None = None) -> None:
        """Listen; requests go to ``handler``."""
        await self._server.start_serving(partial(self._open, handler), on_unreadable)

    async def stop_listening(self) -> None:
        """Accept no further connections; open ones are still served."""
        await self._server.stop_listening()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        await self._server.stop()

    def _open(self, handler: RequestHandler, link: StreamConnection) -> Connection:
        return Connection(
            link,
            handler,
            connection_id=next(_connection_ids),
            peer_address=link.peer[0],
            listener_name=self.listener_name,
            max_request_bytes=self._limits.max_request_bytes,
            max_pending_responses=self._limits.max_pending_responses,
        )
