"""Empty batches in place of what compaction removed, so that no log that is written here has a hole.

Kafka leaves holes. A copy of batches that were read from a log of Kafka fills them, and so does each
round of compaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.records import NO_TIMESTAMP, BatchHeader, read_header, replace_records
from pykraft.log_store.epoch_cache import Epochs
from pykraft.log_store.segment.segment import MAX_RELATIVE_OFFSET
from pykraft.runtime.disk import Buffer


def spanning_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """An empty batch without a producer in place of all that was removed between two offsets."""
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=end_offset - base_offset - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return bytes(replace_records(header, b"", Compression.NONE))


def spanning_batches(start: int, end_offset: int, epochs: Epochs, leader_epoch: int) -> Iterator[bytes]:
    """Empty batches for everything from ``start`` to ``end_offset``, one for each leader epoch in ``epochs``.

    ``leader_epoch``: for offsets older than all of them.
    """
    while start < end_offset:
        index = bisect_right(epochs, start, key=lambda entry: entry.start_offset)
        end = min(end_offset, start + MAX_RELATIVE_OFFSET)
        if index < len(epochs):
            end = min(end, epochs[index].start_offset)
        yield spanning_batch(start, end, epochs[index - 1].epoch if index else leader_epoch)
        start = end


def fill_gaps(
    data: Buffer,
    headers: Sequence[BatchHeader],
    log_end_offset: int,
    latest_epoch: int,
    epochs: Epochs = (),
) -> tuple[Buffer, Sequence[BatchHeader]]:
    """The batches of ``headers``, which are those in ``data``, without a gap from ``log_end_offset`` on.

    What is missing is of the epoch that ``epochs`` tell, else of that of the batch before (``latest_epoch``
    for the first, -1 if there is none).
    """
    if headers[-1].next_offset - log_end_offset == sum(header.last_offset_delta + 1 for header in headers):
        return data, headers
    filled, all_headers = bytearray(), []
    position, next_offset, epoch = 0, log_end_offset, latest_epoch
    for header in headers:
        missing_epoch = header.partition_leader_epoch if epoch < 0 else epoch
        for batch in spanning_batches(next_offset, header.base_offset, epochs, missing_epoch):
            filled += batch
            all_headers.append(read_header(batch))
        filled += data[position : position + header.size_bytes]
        all_headers.append(header)
        position += header.size_bytes
        next_offset, epoch = header.next_offset, header.partition_leader_epoch
    return filled, all_headers
