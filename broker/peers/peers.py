"""One connection to each other broker for each API, for requests that are answered one after another.

One for all would let an API wait for another: markers wait for replicas, for as long as half a minute, and
until a transaction is verified its producer waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from pykraft.broker.replicas.ports import ImageSource
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.address import Address

if TYPE_CHECKING:
    from pykraft.kafka_client.connection import Connection
    from pykraft.kafka_client.network import Network

R = TypeVar("R", bound=Message)


class Peers:
    """The brokers that the newest metadata image has, by their addresses for other brokers."""

    def __init__(self, client_id: str, listener: str, metadata: ImageSource, network: Network) -> None:
        """``client_id``: see :mod:`.identity`."""
        self._client_id = client_id
        self._listener = listener
        self._metadata = metadata
        self._network = network
        self._peers: dict[tuple[int, int], _Peer] = {}
        """By broker and API."""

    async def call(self, node_id: int, request: Request[R], timeout_ms: int) -> R:
        """Send a request, behind those of the same API to the same broker that are not answered yet.

        NETWORK_EXCEPTION if no answer came: the request may have been carried out.
        """
        peer = self._peers.setdefault((node_id, request.API_KEY), _Peer())
        deadline_ms = self._network.now_ms() + timeout_ms
        async with peer.turn:
            try:
                connection = await self._connect(peer, node_id, deadline_ms)
                return await connection.call(request, deadline_ms)
            except KafkaError as error:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id}: {error.message}") from error

    async def _connect(self, peer: _Peer, node_id: int, deadline_ms: int) -> Connection:
        from pykraft.kafka_client.connection import Connection  # a broker starts without it

        address = self._find_address(node_id)
        connection = peer.connection
        if connection is not None and (connection.closed or connection.address != address):
            connection.close()
            connection = None
        if connection is None:
            connection = await Connection.open(self._network, address, self._client_id, deadline_ms)
            peer.connection = connection
        return connection

    def _find_address(self, node_id: int) -> Address:
        broker = self._metadata.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "its address is not known")
        return Address(endpoint.host, endpoint.port)

    def close(self) -> None:
        for peer in self._peers.values():
            if peer.connection is not None:
                peer.connection.close()
        self._peers.clear()


class _Peer:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.connection: Connection | None = None
