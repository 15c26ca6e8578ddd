"""Requests of simulated clients to a broker: each one uses its own connection to the broker's listener."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pykraft.jepsen_like.simulation.cluster.settings import CLIENT_PORT
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.streams import address_of

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

TIMEOUT_MS: Final = 8000

M = TypeVar("M", bound=Message)


class Operation(Protocol):
    """A client's operation on the broker that it is connected to."""

    __name__: str

    def __call__(self, node: SimNode) -> Awaitable[None]: ...


class ClientRequests:
    """One process of clients. ``confirmed``: how many of their requests were acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = world.start_client("clients")
        self._network = AsyncioNetwork()
        self.confirmed = 0

    def begin(self, node: SimNode, operation: Operation) -> None:
        """Have a client send a request to the node's broker. The operation's name says what it requests."""
        words = operation.__name__.strip("_").replace("_", " ")

        async def run() -> None:
            try:
                await operation(node)
            except KafkaError as error:
                self._world.log_event("clients", f"{words} through node {node.id}: {error.code.name}")

        self._process.run(run())

    async def call(self, node: SimNode, request: Request[M], client_id: str = "sim") -> M:
        """Send one request to the broker on a connection of its own. :class:`KafkaError` if that fails."""
        deadline_ms = self._network.now_ms() + TIMEOUT_MS
        address = Address(address_of(node.id), CLIENT_PORT)
        connection = await Connection.open(self._network, address, client_id, deadline_ms)
        try:
            return await connection.call(request, deadline_ms)
        finally:
            connection.close()

    def note(self, what: str, name: str, error: int) -> None:
        """The outcome of the request."""
        self.confirmed += error == ErrorCode.NONE
        outcome = "done" if error == ErrorCode.NONE else ErrorCode(error).name
        self._world.log_event("clients", f"{what} {name}: {outcome}")
