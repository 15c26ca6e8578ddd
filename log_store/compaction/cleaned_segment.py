"""Writes one compacted segment beside the log, under names that a start removes.

Leaves no hole: where batches were removed, one empty batch spans their offsets. So a log that was compacted
is still checked as strictly as any other: its segments end where the next ones begin, readers and scrubs miss
no offset, and followers take no hole for what was removed, whatever the topic's policy is by then.
"""

from __future__ import annotations

from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.compaction.gaps import spanning_batches
from pykraft.log_store.compaction.segment_files import CLEANED_SUFFIX
from pykraft.log_store.epoch_cache import Epochs
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.segment.segment import MAX_SEGMENT_BYTES, Segment
from pykraft.runtime.disk import Disk

BUFFER_BYTES = 256 * 1024


class SegmentTooLargeError(Exception):
    """A compacted segment would be larger than positions in it can say: its records compress worse now."""


class CleanedSegmentWriter:
    """``next_offset``: where the next batch would continue; ``size_bytes``: what was given to write."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, epochs: Epochs, *, index_interval_bytes: int
    ) -> None:
        self.segment = Segment(
            disk, directory, base_offset, created_ms=0, index_interval_bytes=index_interval_bytes
        )
        self.segment.use_suffix(CLEANED_SUFFIX)
        self.segment.create()
        self.next_offset = base_offset
        self.size_bytes = 0
        self._epochs = epochs
        self._buffer = bytearray()
        self._headers: list[BatchHeader] = []

    def write(self, header: BatchHeader, batch: bytes) -> None:
        """Write a batch that stays; ``header`` is its own."""
        self._span(header.base_offset, header.partition_leader_epoch)
        self._add(header, batch)

    def finish(self, end_offset: int, leader_epoch: int, aborted: list[AbortedTransaction]) -> Segment:
        """The complete segment up to ``end_offset``, durable except for its name. Blocks.

        ``leader_epoch``: that of the last batch that was read.
        """
        self._span(end_offset, leader_epoch)
        self._write_buffer()
        segment = self.segment
        for transaction in aborted:
            segment.aborted.append(transaction)
        segment.seal()
        segment.file.flush()
        segment.flush_indexes()
        segment.is_durable = True
        segment.close()
        return segment

    def _span(self, end_offset: int, leader_epoch: int) -> None:
        """Let empty batches stand for everything between what was written and ``end_offset``.

        ``leader_epoch`` is that of the batch which follows, for offsets older than all known epochs.
        """
        for batch in spanning_batches(self.next_offset, end_offset, self._epochs, leader_epoch):
            self._add(read_header(batch), batch)

    def _add(self, header: BatchHeader, batch: bytes) -> None:
        self._buffer += batch
        self._headers.append(header)
        self.next_offset = header.next_offset
        self.size_bytes += len(batch)
        if self.size_bytes > MAX_SEGMENT_BYTES:
            raise SegmentTooLargeError(f"{self.segment.path} would have more than {MAX_SEGMENT_BYTES} bytes")
        if len(self._buffer) >= BUFFER_BYTES:
            self._write_buffer()

    def _write_buffer(self) -> None:
        if self._headers:
            self.segment.append(self._buffer, self._headers)
            self._buffer = bytearray()
            self._headers = []
