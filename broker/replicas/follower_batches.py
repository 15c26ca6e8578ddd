"""Which of the batches that a leader sent a follower may append."""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, iter_headers


def find_new_batches(
    data: memoryview,
    log_end_offset: int,
    latest_epoch: int,
    leader_epoch: int,
    *,
    may_have_gaps: bool = False,
) -> tuple[list[BatchHeader], int, int]:
    """Headers of the whole batches at or behind ``log_end_offset``, and where in ``data`` they lie.

    Batches that end before are passed over, a partial one at the end is left for the next fetch. One that
    overlaps what is there or fails its checksum is CORRUPT_MESSAGE for all; so is one of an epoch older
    than the log's or newer than the leader's. A leader that was deposed and then truncated may send such:
    the file range it had promised holds its successor's bytes by now, and they would follow on what never
    was there. A gap is refused unless ``may_have_gaps``: no CRC covers the offset of a batch, and a leader
    may have a hole.
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
                ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}, expected was {expected}"
            )
        if header.base_offset < expected or not crc_is_valid(data, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"bad batch at offset {header.base_offset}")
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
