"""The link to the coordinator of a group or of a transactional id.

It is looked for when it is needed, and again when it fails or has moved.
"""

from __future__ import annotations

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.connection import Connection, R
from pykraft.kafka_client.coordinators import GROUP_KEY, ask_for_coordinator
from pykraft.kafka_protocol.codec.schema import Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.address import Address

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class CoordinatorLink:
    """For one task at a time. ``key``: the group's or the transactional id."""

    def __init__(self, cluster: Cluster, key: str, key_type: int = GROUP_KEY) -> None:
        self.cluster = cluster
        self.key = key
        self._key_type = key_type
        self._address: Address | None = None

    def forget(self) -> None:
        """Look for the coordinator again next time."""
        self._address = None

    def check(self, code: int, message: str) -> None:
        """Raise the error of an answer, if there is one."""
        if code in _MOVED:
            self.forget()
        if code:
            raise KafkaError(ErrorCode(code), message)

    async def connection(self, deadline_ms: int) -> Connection:
        """One attempt; after a failure nothing was sent."""
        if self._address is None:
            coordinator = await ask_for_coordinator(self.cluster, self.key, deadline_ms, self._key_type)
            self._address = Address(coordinator.host, coordinator.port)
        try:
            return await self.cluster.connection(self._address, deadline_ms)
        except BaseException:
            self.forget()
            raise

    async def call(self, request: Request[R], deadline_ms: int, *, max_version: int | None = None) -> R:
        """One attempt. Any failure may mean that the coordinator is elsewhere by now."""
        connection = await self.connection(deadline_ms)
        try:
            return await connection.call(request, deadline_ms, max_version=max_version)
        except BaseException:
            self.forget()
            raise

    def close(self) -> None:
        self.cluster.close()
