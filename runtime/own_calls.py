"""Calls of a node to itself: the handler runs in this process, and no byte passes through the network.

A combined node asks its own controller whenever that one is active: to register, for heartbeats, for every
request that it forwards. What a caller sees is the same as with a call to another node: a deadline, a failure
in place of an exception, limits on what can be in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pykraft.runtime.address import Address
from pykraft.runtime.rpc import PendingCall, RpcFailure, RpcHandler, RpcTransport
from pykraft.runtime.rpc_limits import ServerLimits
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor

logger = logging.getLogger(__name__)


class OwnCalls:
    """The methods that this node serves, for its own calls. The limits are those of one connection."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = limits or ServerLimits()
        self._handlers: dict[str, RpcHandler] = {}
        self._slots = asyncio.Semaphore(self._limits.calls_of_a_connection)
        self._served_bytes = 0

    def register(self, method: str, handler: RpcHandler) -> None:
        self._handlers[method] = handler

    async def call(self, method: str, payload: bytes, deadline_ms: int) -> bytes | RpcFailure:
        """The outcome of one call. Cancelling it cancels its handler, as the deadline does."""
        handler = self._handlers.get(method)
        if handler is None:
            return RpcFailure(f"UNIMPLEMENTED: {method}")
        if len(payload) > self._limits.request_bytes:
            return RpcFailure(f"RESOURCE_EXHAUSTED: a request of {len(payload)} bytes")
        try:
            async with asyncio.timeout(deadline_ms / 1000) as deadline, self._slots:
                return await self._serve(method, handler, payload)
        except TimeoutError:
            assert deadline.expired()  # others end in _serve
            return RpcFailure("DEADLINE_EXCEEDED: Deadline Exceeded")

    async def _serve(self, method: str, handler: RpcHandler, payload: bytes) -> bytes | RpcFailure:
        if self._served_bytes + len(payload) > self._limits.served_bytes:
            return RpcFailure("RESOURCE_EXHAUSTED: too many bytes are being served")
        self._served_bytes += len(payload)
        try:
            return await handler(payload)
        except Exception:
            logger.exception("%s failed", method)
            return RpcFailure("INTERNAL: internal error")
        finally:
            self._served_bytes -= len(payload)


class OwnFirstTransport:
    """Calls to ``address``, at which others reach this node, are :class:`OwnCalls`; the rest are sent.

    ``make_remote`` makes the transport for those when there is the first one.
    """

    def __init__(
        self,
        own: OwnCalls,
        address: Address | None,
        make_remote: Callable[[], RpcTransport],
        on_fatal: FatalHandler,
    ) -> None:
        self._own = own
        self._address = address
        self._make_remote = make_remote
        self._remote: RpcTransport | None = None
        self._tasks = TaskSupervisor(on_fatal)

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        if to == self._address:
            return self._tasks.start(self._call(method, payload, deadline_ms, on_reply), method)
        if self._remote is None:
            self._remote = self._make_remote()
        return self._remote.send(to, method, payload, deadline_ms, on_reply)

    async def _call(
        self,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> None:
        on_reply(await self._own.call(method, payload, deadline_ms))

    async def close(self) -> None:
        """Cancel the calls in flight; their ``on_reply`` never runs."""
        await self._tasks.close()
        if self._remote is not None:
            await self._remote.close()
