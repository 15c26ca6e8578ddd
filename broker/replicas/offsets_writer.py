"""The partitions of ``__consumer_offsets``, as the group coordinator wants them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.group_coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers

logger = logging.getLogger(__name__)

__all__ = ["OFFSETS_TOPIC", "OffsetsTopicWriter"]

_READ_BYTES = 64 * 1024
"""Decoded in one piece, on the event loop; some hundred records."""


class OffsetsTopicWriter:
    """The group coordinator's :class:`~pykraft.group_coordinator.shard.PartitionWriter`."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[tuple[bytes, bytes | None]], now_ms: int
    ) -> int:
        batch = encode_batch(
            [RecordInput(key=key, value=value, timestamp_ms=now_ms) for key, value in records],
            leader_epoch=leader_epoch,
        )
        return self._replicas.append_records(OFFSETS_TOPIC, partition, leader_epoch, batch)

    def high_watermark(self, partition: int) -> int:
        return self._replicas.high_watermark(OFFSETS_TOPIC, partition)

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[Record], int]:
        """Records from ``start_offset`` on, without control batches, and the offset behind the last batch.

        A batch whose records make no sense is stepped over, as a record is that makes none: the groups of a
        partition must not be out of reach for ever because of it.
        """
        data, _ = await self._replicas.read(OFFSETS_TOPIC, partition, start_offset, _READ_BYTES)
        records: list[Record] = []
        next_offset = start_offset
        for position, header in iter_headers(data):
            next_offset = header.next_offset
            if not header.is_control:
                whole = data[position : position + header.size_bytes]
                try:
                    decoded = decode_batch(whole, header)
                except ProtocolError as error:
                    logger.error("%s-%d, batch %d: %s", OFFSETS_TOPIC, partition, header.base_offset, error)
                    continue
                records += [item for item in decoded if item.offset >= start_offset]
        return records, next_offset
