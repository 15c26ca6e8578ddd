"""The port through which the client reaches brokers: connect, send a frame, receive a frame, wait.

The client's logic is written once, as coroutines over this port. The asyncio adapter suspends in them; the
blocking adapter never does, so that :func:`pykraft.kafka_client.blocking.run` can run the same code to its
end on a plain socket, without an event loop (as Spark executors need).

Deadlines are readings of :meth:`Network.now_ms`, a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from pykraft.runtime.address import Address, parse_address

T = TypeVar("T")


class Channel(Protocol):
    """One connection that carries frames: four bytes of length, then that many bytes."""

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        """Write the length prefix and the frame. :class:`OSError` when the peer is gone or too slow."""
        ...

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        """The next frame without its prefix. :class:`OSError` as above, or if it exceeds ``max_bytes``."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    """Makes connections and tells the time."""

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        """:class:`OSError` (:class:`TimeoutError` is one) when the address cannot be reached in time."""
        ...

    async def sleep(self, duration_ms: int) -> None: ...

    def now_ms(self) -> int: ...

    def lock(self) -> AbstractAsyncContextManager[object]:
        """A new lock: one task at a time enters, the others wait in their order."""
        ...


class Event(Protocol):
    """As :class:`asyncio.Event`; waited for with :meth:`ConcurrentNetwork.wait`."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...


class Future(Protocol[T]):
    """As :class:`asyncio.Future`."""

    def done(self) -> bool: ...

    def set_result(self, result: T, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...

    def __await__(self) -> Generator[Any, None, T]: ...


class Task(Protocol):
    """As :class:`asyncio.Task`."""

    def cancel(self) -> bool: ...

    def done(self) -> bool: ...


class ConcurrentNetwork(Network, Protocol):
    """A network whose coroutines run concurrently.

    For clients that work in the background, such as a producer that lingers or a group member that sends
    heartbeats.
    """

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run a coroutine in the background. It must not raise anything but its cancellation."""
        ...

    def event(self) -> Event: ...

    def future(self) -> Future[Any]: ...

    async def wait(self, event: Event, deadline_ms: int | None = None) -> None:
        """Wait until the event is set or the deadline (None: there is none) has passed."""
        ...


def parse_bootstrap_servers(text: str) -> tuple[Address, ...]:
    """``host:port,host:port`` as addresses; IPv6 hosts in brackets. :class:`ValueError` if malformed."""
    addresses = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        try:
            addresses.append(parse_address(item))
        except ValueError as error:
            raise ValueError(f"bootstrap.servers: {error}") from None
    if not addresses:
        raise ValueError("bootstrap.servers names no server")
    return tuple(dict.fromkeys(addresses))
