"""gRPC as the carrier of :mod:`pykraft.runtime.rpc`: the only file that imports grpc.

Bytes in, bytes out: messages are serialised by the caller, methods are registered by their full name, so no
generated stubs are needed. The channel options are the result of measurements: without them a server would
share its port silently with a second process, and a client would back off for many seconds after an outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from pykraft.runtime.rpc import RpcAddress, RpcFailure, RpcHandler

logger = logging.getLogger(__name__)

_MESSAGE_LIMIT_BYTES = 16 << 20
_SERVER_OPTIONS = (
    # By default two processes may bind one port and split its traffic without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
)
_CHANNEL_OPTIONS = (
    # The default backoff grows to minutes; a restarted peer must be seen at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 150),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
)


class GrpcTransport:
    """The calling side: one channel per peer, opened on first use."""

    def __init__(self) -> None:
        self._channels: dict[RpcAddress, grpc.aio.Channel] = {}
        self._calls: dict[tuple[RpcAddress, str], grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._in_flight: set[asyncio.Task[None]] = set()

    def send(
        self,
        to: RpcAddress,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._call(to, method, payload, deadline_ms, on_reply))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _call(
        self,
        to: RpcAddress,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> None:
        outcome: bytes | RpcFailure
        try:
            outcome = await self._callable(to, method)(payload, timeout=deadline_ms / 1000)
        except grpc.aio.AioRpcError as error:
            outcome = RpcFailure(f"{error.code().name}: {error.details()}")
        on_reply(outcome)

    def _callable(self, to: RpcAddress, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        call = self._calls.get((to, method))
        if call is None:
            channel = self._channels.get(to)
            if channel is None:
                channel = grpc.aio.insecure_channel(str(to), options=_CHANNEL_OPTIONS)
                self._channels[to] = channel
            call = channel.unary_unary(method, None, None)
            self._calls[to, method] = call
        return call

    async def close(self) -> None:
        """Cancel the calls in flight (their ``on_reply`` never runs) and close every channel."""
        for task in list(self._in_flight):
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()
        self._calls.clear()


class GrpcServer:
    """The answering side, on one host and port; port 0 picks a free one."""

    def __init__(self, host: str, port: int) -> None:
        self._address = RpcAddress(host or "0.0.0.0", port)
        self._handlers: dict[str, RpcHandler] = {}
        self._server: grpc.aio.Server | None = None

    def register(self, method: str, handler: RpcHandler) -> None:
        assert self._server is None, "register before start"
        self._handlers[method] = handler

    async def start(self) -> int:
        """Bind and serve. :class:`OSError` if the address is taken."""
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        server.add_generic_rpc_handlers((_Router(self._handlers),))
        try:
            port = server.add_insecure_port(str(self._address))
        except RuntimeError:
            port = 0
        if port == 0:
            await server.stop(None)
            raise OSError(f"cannot listen on {self._address}: is the address taken?")
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_ms: int) -> None:
        if self._server is not None:
            await self._server.stop(grace_ms / 1000)
            self._server = None


class _Router(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Finds the handler of a method by its full name."""

    def __init__(self, handlers: dict[str, RpcHandler]) -> None:
        self._methods = {name: _serve(name, handler) for name, handler in handlers.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method)


def _serve(name: str, handler: RpcHandler) -> Any:
    async def call(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return await handler(request)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s failed", name)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
            raise AssertionError("abort raises") from None

    return grpc.unary_unary_rpc_method_handler(call)
