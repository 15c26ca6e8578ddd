"""gRPC as the carrier of :mod:`pykraft.runtime.rpc`: the only file that imports grpc.

Bytes in, bytes out: messages are serialised by the caller, methods are registered by their full name, so no
generated stubs are needed. The channel options were found by measurement: without them a server would
silently share its port with a second process, and a client would back off for many seconds after an outage.

A server limits the resources that any client can use: connections, concurrent calls, the size of one request
and of all that are being served. Beyond a limit, a call is refused with RESOURCE_EXHAUSTED at once. When a
caller disconnects, or its deadline passes, gRPC cancels its handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

import grpc
import grpc.aio

from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address
from pykraft.runtime.network.tcp_server import bind_failure
from pykraft.runtime.rpc import RpcFailure, RpcHandler
from pykraft.runtime.rpc_limits import ServerLimits
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor

logger = logging.getLogger(__name__)

MOST_CHANNELS: Final = 64
"""A limit at the calling side, because peers can name any number of addresses."""

_MESSAGE_LIMIT_BYTES = 16 << 20
_IDLE_CONNECTION_MS = 300_000
_HANDSHAKE_TIMEOUT_MS = 10_000
_CHANNEL_OPTIONS = (
    # The default backoff grows to minutes; a restarted peer must be seen at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 150),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
)


def _is_of_the_server(record: logging.LogRecord) -> bool:
    """gRPC reports a caller that has gone before its answer could be sent like a bug, with a traceback."""
    return not record.getMessage().startswith("ExecuteBatchError raised in core")


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_the_server)


@dataclass(slots=True)
class _Peer:
    """The channel to one address; ``in_flight`` counts the calls that wait for a response."""

    channel: grpc.aio.Channel
    calls: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = field(default_factory=dict)
    in_flight: int = 0


class GrpcTransport:
    """The calling side: one channel per peer, opened on first use; at a limit, the oldest is closed."""

    def __init__(self, on_fatal: FatalHandler) -> None:
        self._peers: dict[Address, _Peer] = {}
        self._tasks = TaskSupervisor(on_fatal)

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> asyncio.Task[None]:
        return self._tasks.start(self._call(to, method, payload, deadline_ms, on_reply), method)

    async def _call(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> None:
        outcome: bytes | RpcFailure
        peer = self._peer(to)
        call = peer.calls.get(method)
        if call is None:
            call = peer.calls[method] = peer.channel.unary_unary(method, None, None)
        peer.in_flight += 1
        try:
            outcome = await call(payload, timeout=deadline_ms / 1000)
        except grpc.aio.AioRpcError as error:
            outcome = RpcFailure(f"{error.code().name}: {error.details()}")
        finally:
            peer.in_flight -= 1
        on_reply(outcome)
        await self._close_idle()

    def _peer(self, to: Address) -> _Peer:
        peer = self._peers.pop(to, None)
        if peer is None:
            peer = _Peer(grpc.aio.insecure_channel(str(to), options=_CHANNEL_OPTIONS))
        self._peers[to] = peer  # the last one is the most recently used
        return peer

    async def _close_idle(self) -> None:
        """Close the oldest idle channels if there are too many. Those with calls in flight are kept."""
        surplus = len(self._peers) - MOST_CHANNELS
        if surplus <= 0:
            return
        idle = [address for address, peer in self._peers.items() if not peer.in_flight]
        for peer in [self._peers.pop(address) for address in idle[:surplus]]:
            await peer.channel.close(None)

    async def close(self) -> None:
        """Cancel the calls in flight (their ``on_reply`` never runs) and close every channel."""
        await self._tasks.close()
        for peer in self._peers.values():
            await peer.channel.close(None)
        self._peers.clear()


def _server_options(limits: ServerLimits) -> tuple[tuple[str, int], ...]:
    return (
        # By default two processes may bind one port and silently share its traffic.
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", limits.calls_of_a_connection),
        ("grpc.max_connection_idle_ms", _IDLE_CONNECTION_MS),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
    )


class GrpcServer:
    """The serving side, on one address."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = limits or ServerLimits()
        self._handlers: dict[str, RpcHandler] = {}
        self._is_started = False
        self._server = grpc.aio.server(
            options=_server_options(self._limits), maximum_concurrent_rpcs=self._limits.calls
        )

    def register(self, method: str, handler: RpcHandler) -> None:
        self._handlers[method] = handler

    async def bind(self, host: str, port: int) -> int:
        try:
            bound = self._server.add_insecure_port(str(Address(host or "0.0.0.0", port)))
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise OSError(await _find_bind_failure(host, port))
        return bound

    async def start(self) -> None:
        self._server.add_generic_rpc_handlers((_Router(self._handlers, self._limits.served_bytes),))
        self._is_started = True
        await self._server.start()

    async def stop(self, grace_ms: int) -> None:
        if not self._is_started:
            await self._server.start()  # otherwise gRPC does not release an address that was bound
        await self._server.stop(grace_ms / 1000)


async def _find_bind_failure(host: str, port: int) -> str:
    """Why an address cannot be bound, found with a socket of our own: gRPC does not report it."""
    try:
        probe = await asyncio.start_server(lambda reader, writer: writer.close(), host or None, port)
    except OSError as error:
        return bind_failure(error)
    probe.close()
    await probe.wait_closed()
    return "the address was in use a moment ago"


class _Router(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Finds the handler of a method by its full name."""

    def __init__(self, handlers: dict[str, RpcHandler], max_served_bytes: int) -> None:
        self._served_bytes = 0
        self._max_served_bytes = max_served_bytes
        self._methods = {name: self._serve(name, handler) for name, handler in handlers.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method)

    def _serve(self, name: str, handler: RpcHandler) -> Any:
        async def call(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            if self._served_bytes + len(request) > self._max_served_bytes:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many bytes are being served")
            self._served_bytes += len(request)
            try:
                return await handler(request)
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("%s failed", name)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")
                raise AssertionError("abort raises") from None
            finally:
                self._served_bytes -= len(request)

        return grpc.unary_unary_rpc_method_handler(call)
