"""The check of disks finds a log that does not open, and nothing in what a crash may leave behind."""

from __future__ import annotations

from random import Random

import pytest

from pykraft.broker.logs.log_loading import create_log
from pykraft.jepsen_like.sim.cluster.disk_checks import check_disk_opens
from pykraft.jepsen_like.sim.cluster.image_invariants import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.memory import MemoryDisk


def _disk_with_a_log() -> MemoryDisk:
    """Twenty records in segments of a few; half of them are flushed."""
    disk = MemoryDisk()
    disk.make_dirs("/logs")
    log = create_log(disk, "/logs", "/logs/t-0", LogConfig(segment_bytes=300), Uuid(b"t" * 16), 0).log
    for number in range(20):
        record = RecordInput(None, b"value", (), 1_000)
        batch = memoryview(bytearray(encode_batch([record], base_offset=number, leader_epoch=0)))
        log.append(batch, (read_header(batch),), now_ms=0)
        if number == 10:
            log.flush()
    return disk


@pytest.mark.parametrize("seed", range(10))
def test_a_disk_opens_after_a_crash_and_is_left_as_it_was(seed: int) -> None:
    disk = _disk_with_a_log()
    disk.crash(Random(seed))
    before = disk.list("/logs/t-0")
    check_disk_opens(disk, ["/logs"], 0)
    assert disk.list("/logs/t-0") == before


def test_a_log_that_does_not_open_is_found_but_not_one_that_was_set_aside_before() -> None:
    disk = _disk_with_a_log()
    disk.crash(Random(1))
    disk.write_atomic("/logs/t-0/partition.metadata", b"nonsense")
    with pytest.raises(InvariantViolation, match="every_log_opens_after_a_crash"):
        check_disk_opens(disk, ["/logs"], 0)
    disk.rename("/logs/t-0", "/logs/t-0.00000000-damaged")
    check_disk_opens(disk, ["/logs"], 0)
