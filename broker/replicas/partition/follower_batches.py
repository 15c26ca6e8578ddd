"""Decides which of the batches from a leader a follower may append."""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_is_valid,
    iter_headers,
    read_header,
)
from pykraft.log_store.compaction.gaps import spanning_batch


def find_new_batches(
    data: memoryview,
    log_end_offset: int,
    latest_epoch: int,
    leader_epoch: int,
    *,
    may_have_gaps: bool = False,
) -> tuple[list[BatchHeader], int, int]:
    """The headers of the whole batches at or after ``log_end_offset``, and their (start, end) in ``data``.

    Batches that end before it are skipped; a partial batch at the end is left for the next fetch. A batch
    that overlaps the log or fails its checksum refuses all of them with CORRUPT_MESSAGE; so does a batch of
    an epoch older than the log's or newer than the leader's. A leader that was deposed and then truncated its
    log may send such a batch: the file range that it is sending holds its successor's records by now, which
    do not follow the log's own. A gap is refused unless ``may_have_gaps``: no CRC covers the offset of a
    batch, and a leader's log may have a hole.
    """
    headers: list[BatchHeader] = []
    start = end = 0
    expected = log_end_offset
    epoch = latest_epoch
    for position, header in iter_headers(data):
        if not headers and header.next_offset <= expected:
            start = end = position + header.size_bytes
            continue
        if header.base_offset > expected and not may_have_gaps:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}, expected {expected}"
            )
        if header.base_offset < expected or not crc_is_valid(data, position, header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {header.base_offset} does not match its checksum",
            )
        if not epoch <= header.partition_leader_epoch <= leader_epoch:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch at offset {header.base_offset} is of epoch {header.partition_leader_epoch}, "
                f"not of {epoch} to {leader_epoch}",
            )
        epoch = header.partition_leader_epoch
        headers.append(header)
        expected = header.next_offset
        end = position + header.size_bytes
    return headers, start, end


def begin_within_span(data: memoryview, log_end_offset: int) -> memoryview:
    """``data``, but if the first new batch is an empty one that spans removed batches on both sides of the
    log's end, it stands for the rest of them.

    The leader has compacted its log beyond the end of the follower's, which has some of the removed batches.
    """
    if len(data) < HEADER_BYTES or read_header(data).base_offset >= log_end_offset:
        return data
    for position, header in iter_headers(data):
        if header.next_offset <= log_end_offset:
            continue
        if (
            header.base_offset < log_end_offset
            and header.record_count == 0
            and header.producer_id == NO_PRODUCER_ID
            and crc_is_valid(data, position, header)
        ):
            rest = spanning_batch(log_end_offset, header.next_offset, header.partition_leader_epoch)
            return memoryview(bytearray(rest + data[position + header.size_bytes :]))
        break
    return data
