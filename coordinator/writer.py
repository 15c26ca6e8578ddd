"""The port through which a coordinator reads and writes the partitions of its topic."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.markers import EndOfTransaction, Marker


class BatchBody(NamedTuple):
    """The decompressed records of one batch; those below ``start_offset`` are not wanted.

    ``producer_id``: whose transaction it is part of, -1 if of none; or whose transaction the ``marker`` ends,
    which is then all that is in the batch.
    """

    base_offset: int
    record_count: int
    body: bytes
    start_offset: int = 0
    producer_id: int = -1
    marker: Marker | None = None


class PartitionWriter(Protocol):
    """Access to the partitions of one topic, which the broker provides."""

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        """Append one batch and return the exclusive end offset. :class:`KafkaError` if that fails."""
        ...

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        """Append the marker of a transaction; returns and raises as :meth:`append`."""
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """The size of the largest batch that can be appended."""
        ...

    def high_watermark(self, partition: int) -> int:
        """The offset (exclusive) below which all records survive a change of the leader."""
        ...

    def read(self, partition: int, start_offset: int) -> Awaitable[tuple[Sequence[BatchBody], int]]:
        """Some batches from ``start_offset`` on and the next offset; at the end none and the same offset."""
        ...
