"""The transaction coordinator's needs from the broker around it."""

from __future__ import annotations

from typing import Protocol

from pykraft.transaction_coordinator.transaction import Transaction


class MarkersRefusedError(Exception):
    """A partition has seen markers of a newer coordinator, or of a newer epoch: this one is to stop."""


class MarkerWriter(Protocol):
    async def write(self, prepared: Transaction, coordinator_epoch: int) -> None:
        """Write the markers of a prepared transaction to all of its partitions, wherever they are led.

        Returns when each has committed its marker, or was deleted, however long that takes. Markers may be
        written again. ``coordinator_epoch``: the leader epoch of the coordinator's partition.
        :class:`MarkersRefusedError`.
        """
        ...


class ProducerIds(Protocol):
    def next_id(self) -> int:
        """A producer id that was never used. :class:`KafkaError` while the controller has given none."""
        ...
