"""Reads and writes the partitions of a coordinator's topic."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from pykraft.broker.logs.producers.verification import UNVERIFIED
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import BrokerLease
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.coordinator.writer import BatchBody
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction, read_marker
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import decompress_records
from pykraft.kafka_protocol.records import NO_PRODUCER_ID, TRANSACTIONAL_BIT, iter_headers, read_header
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.log_store.reader import read_checked
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import Workers

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
"""How much is read in one piece: some thousand records."""


class CoordinatorTopic:
    """The :class:`~pykraft.coordinator.writer.PartitionWriter` of one topic."""

    def __init__(
        self, topic: str, table: ReplicaTable, lease: BrokerLease, clock: Clock, workers: Workers
    ) -> None:
        self._topic = topic
        self._table = table
        self._lease = lease
        self._clock = clock
        self._workers = workers

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        """Append a marker, as :meth:`append`. Also the errors of :meth:`.Partition.end_transaction`."""
        replica = self._find_leader(partition, leader_epoch)
        try:
            return replica.end_transaction(end, now_ms).next_offset
        except STORAGE_ERRORS as error:
            raise replica.storage_failed(error) from error

    def _find_leader(self, partition: int, leader_epoch: int) -> Partition:
        if self._lease.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is fenced")
        replica = self._find(partition)
        replica.require_leader(leader_epoch)
        return replica

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        """Append with the guarantees of acks=all. Returns the offset after the records.

        :class:`KafkaError` if this broker does not lead in ``leader_epoch`` or too few replicas are in sync.
        """
        replica = self._find_leader(partition, leader_epoch)
        limit = replica.log.config.max_message_bytes
        if records.size_bytes > limit:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {records.size_bytes} bytes exceeds the limit of {limit}",
            )
        data = memoryview(records.build(leader_epoch, now_ms))
        # Whoever decided on a batch of a transaction has verified it; markers cannot overtake the batch.
        try:
            info = replica.append_as_leader(
                data, read_header(data), self._clock.wall_ms(), all_acks=True, guard=UNVERIFIED
            )
        except STORAGE_ERRORS as error:
            raise replica.storage_failed(error) from error
        return info.next_offset

    def max_batch_bytes(self, partition: int) -> int:
        return self._find(partition).log.config.max_message_bytes

    def high_watermark(self, partition: int) -> int:
        return self._find(partition).high_watermark

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        """The records from ``start_offset`` on, uncommitted ones too, and the offset after the last batch.

        An offset below the log start reads from the log start. KAFKA_STORAGE_ERROR if the log is damaged
        there.
        """
        data = await self._read_batches(partition, start_offset)
        return unfold_batches(data, start_offset, f"{self._topic}-{partition}")

    async def _read_batches(self, partition: int, start_offset: int) -> bytes:
        replica = self._find(partition)
        log = replica.log
        start, cuts = max(start_offset, log.log_start_offset), log.truncation_count
        try:
            piece = replica.read_replica(start, _READ_BYTES, at_least_one=True)
            return b"" if piece is None else await self._workers.run(partial(read_checked, piece))
        except BadIndexError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{error}; it is built again") from error
        except STORAGE_ERRORS as failure:
            if log.truncation_count != cuts:  # truncated during the read: another broker leads now
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica} was truncated") from failure
            raise replica.storage_failed(failure) from failure

    def _find(self, partition: int) -> Partition:
        replica = self._table.find(self._topic, partition)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._topic}-{partition} is not here")
        return replica


def unfold_batches(data: bytes, start_offset: int, name: str) -> tuple[list[BatchBody], int]:
    """Whole batches, decompressed, or their markers, and the offset after the last one.

    A batch that cannot be decompressed is skipped, like a single record that cannot be read: it must not make
    the rest of a partition unavailable forever.
    """
    batches: list[BatchBody] = []
    next_offset = start_offset
    for position, header in iter_headers(data):
        next_offset = header.next_offset
        base_offset = header.base_offset
        whole = data[position : position + header.size_bytes]
        try:
            if header.is_control:
                marker = read_marker(header, whole)
                if marker is not None and marker.ends_transaction and base_offset >= start_offset:
                    batches.append(BatchBody(base_offset, 0, b"", start_offset, header.producer_id, marker))
                continue
            body = decompress_records(whole, header)
        except ProtocolError as error:
            logger.error("%s, batch %d: %s", name, base_offset, error)
            continue
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL_BIT else NO_PRODUCER_ID
        batches.append(BatchBody(base_offset, header.record_count, body, start_offset, producer_id))
    return batches, next_offset
