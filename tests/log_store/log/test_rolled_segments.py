"""A segment that was rolled but not flushed, after a power loss, as distinguished from damage."""

import pytest

from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk

OLDEST = "t-0/00000000000000000000.log"


def two_segments(value: bytes) -> tuple[MemoryDisk, LogConfig, int, int]:
    """(disk, config, size of a batch, batches in the older segment); a third segment is the newest."""
    disk = MemoryDisk()
    batch = bytearray(encode_batch([RecordInput(None, value, (), 1)]))
    config = LogConfig(segment_bytes=8 * len(batch))
    log = Log.open(disk, "t-0", config, now_ms=0)
    for offset in range(20):
        data = bytearray(batch)
        assign_offset(data, 0, offset, 1)
        log.append(data, [read_header(data)], now_ms=0)
    assert log.segment_base_offsets == (0, 8, 16)
    log.abandon()
    return disk, config, len(batch), 8


def rewrite(disk: MemoryDisk, content: bytes) -> None:
    file = disk.open(OLDEST)
    file.truncate(0)
    file.append(content)
    file.flush()


@pytest.mark.parametrize("kept_bytes", [0, 5, 8, 12, 30, 61, 75, 100])
def test_rolled_segment_that_ends_in_zeros_is_a_lost_tail(kept_bytes: int) -> None:
    disk, config, size, _ = two_segments(b"v" * 60)
    content = disk.read(OLDEST)
    kept = 5 * size + kept_bytes
    rewrite(disk, content[:kept] + bytes(len(content) - kept))
    log = Log.open(disk, "t-0", config, now_ms=0)
    assert (log.log_end_offset, log.segment_base_offsets) == (5, (0,))


def test_rolled_segment_with_a_page_never_written_is_cut_there() -> None:
    disk, config, size, _ = two_segments(b"v" * 9000)
    content = bytearray(disk.read(OLDEST))
    page = (3 * size // 4096 + 1) * 4096
    content[page : page + 4096] = bytes(4096)
    rewrite(disk, bytes(content))
    log = Log.open(disk, "t-0", config, now_ms=0)
    assert (log.log_end_offset, log.segment_base_offsets) == (3, (0,))


@pytest.mark.parametrize("batch", [2, 7])
def test_flipped_bit_in_a_rolled_segment_is_damage(batch: int) -> None:
    disk, config, size, _ = two_segments(b"v" * 60)
    disk.flip_bit(OLDEST, batch * size + 70)
    with pytest.raises(CorruptLogError, match=f"at position {batch * size}:"):
        Log.open(disk, "t-0", config, now_ms=0)
