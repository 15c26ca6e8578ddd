"""The listeners of one broker, or of one controller, for clients that speak Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.broker.config import ListenerConfig
from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.kafka_protocol.connection import RequestHandler
from pykraft.metadata_log.records import Endpoint
from pykraft.node.config import ServerConfig
from pykraft.runtime.network.tcp import OnUnreadable, StreamRuntime


class ClientListeners:
    """All client listeners together: addresses are bound first, so that they are known, and served later."""

    def __init__(
        self, config: ServerConfig, configured: Sequence[ListenerConfig], streams: StreamRuntime
    ) -> None:
        limits = ListenerLimits.from_properties(config.values)
        self._configured = tuple(configured)
        self._quota = limits.make_quota()
        between_brokers = config.inter_broker_listener_name if len(configured) > 1 else ""
        self._listeners = [
            KafkaListener(
                *(streams, one.host or None, one.port, one.name, limits, self._quota),
                is_exempt=one.name == between_brokers,
            )
            for one in configured
        ]

    def __bool__(self) -> bool:
        return bool(self._listeners)

    async def bind(self) -> tuple[Endpoint, ...]:
        """Bind the addresses; returns the endpoints for clients. :class:`OSError` if one is in use."""
        return tuple(
            [
                configured.endpoint(await listener.bind())
                for configured, listener in zip(self._configured, self._listeners, strict=True)
            ]
        )

    def connection_counts(self) -> list[tuple[str, int]]:
        """The name of each listener, and how many connections it has."""
        return [(one.listener_name, one.connection_count) for one in self._listeners]

    async def start_serving(self, handler: RequestHandler, on_unreadable: OnUnreadable | None = None) -> None:
        """Serve on the addresses that were bound."""
        for listener in self._listeners:
            await listener.start_serving(handler, on_unreadable)

    def limit_connections(self, limits: ListenerLimits) -> None:
        """Change the limits of connections, which all listeners have together."""
        self._quota.set_limits(limits.max_connections, limits.max_connections_per_ip)

    async def stop_listening(self) -> None:
        """Accept no further connections; open ones are still served."""
        for listener in self._listeners:
            await listener.stop_listening()

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        for listener in self._listeners:
            await listener.stop()
