"""A group member's belief of what it owns, and until when.

This is a lease, like a broker's: it ends on the member's own clock before the coordinator can have given the
partitions to another member, even if the member is never told. Only requests that were answered without an
error extend it, counted from when they were sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pykraft.kafka_client.group.config import OwnershipListener
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_protocol.ids import Uuid

Partitions = Mapping[TopicPartition, Uuid]
"""Partitions with the ids of their topics (zeros in the classic protocol, which uses names)."""


class Ownership:
    """:meth:`take` adds partitions, :meth:`revoke` and :meth:`lose` remove them."""

    def __init__(self, network: ConcurrentNetwork, listener: OwnershipListener, lease_ms: int) -> None:
        self._network = network
        self._listener = listener
        self._lease_ms = lease_ms
        self._held: dict[TopicPartition, Uuid] = {}
        self._revoking: set[TopicPartition] = set()
        self._renewed_ms: int | None = None
        self._revoke_by_ms: int | None = None
        self.changed = network.event()

    def held(self) -> Partitions:
        """The partitions owned now."""
        self.maybe_expire()
        return self._held

    def readable(self) -> list[TopicPartition]:
        """The partitions that are owned and not being revoked."""
        return [partition for partition in self.held() if partition not in self._revoking]

    @property
    def renewed_ms(self) -> int | None:
        """When the last request that was answered without an error was sent; None if there is no lease."""
        return self._renewed_ms

    @property
    def valid_until_ms(self) -> int | None:
        """The end of the lease, exclusive."""
        if self._renewed_ms is None:
            return None
        until_ms = self._renewed_ms + self._lease_ms
        return until_ms if self._revoke_by_ms is None else min(until_ms, self._revoke_by_ms)

    def renew(self, sent_ms: int, member_id: str, member_epoch: int) -> bool:
        """Extend the lease by a request answered without an error. False if the answer came too late."""
        self.maybe_expire()
        if self._network.now_ms() >= sent_ms + self._lease_ms:
            return False
        self._renewed_ms = sent_ms
        self._listener.heartbeat(sent_ms, member_id, member_epoch)
        self.changed.set()
        return True

    def take(self, partitions: Partitions) -> bool:
        """Add these partitions; False, and nothing changes, if there is no lease."""
        self.maybe_expire()
        if self.valid_until_ms is None:
            return False
        added = {partition: partitions[partition] for partition in sorted(partitions)}
        self._held |= added
        self._listener.assigned(list(added))
        self.changed.set()
        return True

    async def revoke(self, partitions: Collection[TopicPartition], by_ms: int | None = None) -> None:
        """Revoke these partitions once the listener has returned, or lose everything at ``by_ms``."""
        asked = sorted(self.held().keys() & set(partitions))
        if not asked:
            return
        self._revoking.update(asked)
        self._revoke_by_ms = by_ms
        self.changed.set()
        try:
            await self._listener.revoked(asked)
        finally:
            self.maybe_expire()
            self._revoke_by_ms = None
            for partition in asked:
                self._held.pop(partition, None)
                self._revoking.discard(partition)
            self.changed.set()

    def lose(self) -> None:
        """Drop everything that is owned and call the listener's ``lost``."""
        lost = sorted(self._held)
        self._held.clear()
        self._revoking.clear()
        self._renewed_ms = None
        self.changed.set()
        if lost:
            self._listener.lost(lost)

    def maybe_expire(self) -> None:
        """Lose everything if the lease is over."""
        until_ms = self.valid_until_ms
        if until_ms is not None and self._network.now_ms() >= until_ms:
            self.lose()

    async def watch(self) -> None:
        """Call the listener as soon as the lease ends, whatever else the member waits for."""
        while True:
            self.changed.clear()
            self.maybe_expire()
            await self._network.wait(self.changed, self.valid_until_ms)
