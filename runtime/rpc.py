"""The port for calls between controllers and brokers: bytes out, one response or one failure back.

``send`` does not wait; the response arrives later through ``on_reply``, as an event. Every call has a
deadline, which is the only way to detect a dead peer. A caller may cancel a call before.
gRPC is one adapter (:mod:`pykraft.runtime.grpc_rpc`), beside which a node calls itself directly
(:mod:`pykraft.runtime.own_calls`); simulation supplies another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """No response: the deadline passed, the peer refused the connection, or it does not know the method."""

    reason: str


RpcHandler = Callable[[bytes], Awaitable[bytes]]


class PendingCall(Protocol):
    """A call that was sent."""

    def cancel(self) -> object:
        """Cancel the call: ``on_reply`` will not run, and the peer's handler is cancelled.

        Whether the peer has executed the request is unknown. After the response this does nothing.
        """
        ...


class RpcTransport(Protocol):
    """The calling side."""

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        """Call ``method`` (``/package.Service/Method``) and pass the result to ``on_reply``, exactly once
        unless the call is cancelled.

        ``deadline_ms`` is a duration. ``on_reply`` runs later on the event loop, never inside ``send``.
        """
        ...

    async def close(self) -> None: ...


class RpcServer(Protocol):
    """The serving side. If a handler raises, the call fails and the error is logged as a bug.

    Calls of the node itself are served from :meth:`register` on, those of others from :meth:`start` to
    :meth:`stop`.
    """

    def register(self, method: str, handler: RpcHandler) -> None:
        """Serve ``method``; all registrations come before :meth:`start`."""
        ...

    async def bind(self, host: str, port: int) -> int:
        """Bind the address (port 0: any free one); returns the port.

        Raises :class:`OSError` that says why it cannot be bound.
        """
        ...

    async def start(self) -> None:
        """Serve on the address that was bound. :class:`OSError` if it has been lost since."""
        ...

    async def stop(self, grace_ms: int) -> None: ...
