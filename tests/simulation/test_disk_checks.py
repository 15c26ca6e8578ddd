"""The check of disks finds a log that does not open, and accepts what a crash may leave."""

import errno
from random import Random

import pytest

from pykraft.broker.logs.log_loading import create_log
from pykraft.jepsen_like.simulation.cluster.checks.disk_checks import (
    EVERY_LOG_OPENS,
    LOG_START_IS_STORED,
    METADATA_OPENS,
    NOTHING_FLUSHED_IS_LOST,
    check_disk,
    check_logs_open,
)
from pykraft.jepsen_like.simulation.cluster.options import draw_options
from pykraft.jepsen_like.simulation.cluster.ring import run_schedule
from pykraft.jepsen_like.simulation.cluster.settings import server_config
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY, LogConfig
from pykraft.node.config import ServerConfig
from pykraft.node.format import format_directories
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.clocks import ManualClock


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
    check_logs_open(disk, ["/logs"], 0)
    assert disk.is_dir("/logs/t-0")


def test_a_copy_of_a_disk_that_failed_to_flush_can_be_flushed() -> None:
    disk = _disk_with_a_log()
    disk.inject("flush", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        disk.open("/logs/t-0/00000000000000000000.log").flush()
    disk.copy().open("/logs/t-0/00000000000000000000.log").flush()


def test_a_log_that_does_not_open_is_found_but_not_one_that_was_set_aside_before() -> None:
    disk = _disk_with_a_log()
    disk.crash(Random(1))
    disk.write_atomic("/logs/t-0/partition.metadata", b"nonsense")
    with pytest.raises(InvariantViolation, match="every_log_opens_after_a_crash"):
        check_logs_open(disk, ["/logs"], 0)
    assert disk.is_dir("/logs/t-0.00000000-damaged")
    check_logs_open(disk, ["/logs"], 0)


def test_schedule_opens_disks_that_lose_power_and_finds_a_file_that_was_not_flushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write_unflushed(disk: MemoryDisk, directory: str, topic_id: Uuid) -> None:
        file = disk.open(f"{directory}/{checkpoint.PARTITION_METADATA}")
        file.append(f"version: 0\ntopic_id: {uuid_to_str(topic_id)}\n".encode())
        file.close()

    schedule = Schedule(2, 5_000)
    assert run_schedule(schedule).counts["disks opened after a crash"] >= 3
    monkeypatch.setattr(checkpoint, "write_partition_metadata", write_unflushed)
    with pytest.raises(InvariantViolation, match=EVERY_LOG_OPENS):
        run_schedule(schedule)


def _voter(mark_ends_at: int) -> tuple[MemoryDisk, ServerConfig]:
    """A formatted controller whose mark says that it has flushed so much; its log is empty."""
    config = server_config(draw_options(0), draw_options(0).controllers[0], session_ms=9000)
    disk = MemoryDisk()
    format_directories(
        disk, config, uuid_to_str(Uuid(b"c" * 16)), draw_options(0).features, lambda: Uuid(b"d" * 16), 0
    )
    mark = FlushedMarkFile(disk, f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}")
    mark.write(FlushedMark(mark_ends_at))
    return disk, config


def test_flushed_records_of_the_metadata_log_that_are_gone_are_missed() -> None:
    disk, config = _voter(0)
    check_disk(disk.copy(), config, ManualClock(0), (), {})
    disk, config = _voter(7)
    with pytest.raises(InvariantViolation, match=NOTHING_FLUSHED_IS_LOST):
        check_disk(disk, config, ManualClock(0), (), {})


def test_vote_that_cannot_be_read_is_found() -> None:
    disk, config = _voter(0)
    disk.write_atomic(f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}/quorum-state", b"nonsense")
    with pytest.raises(InvariantViolation, match=METADATA_OPENS):
        check_disk(disk, config, ManualClock(0), (), {})


def test_log_start_that_was_stored_and_is_not_found_again_is_missed() -> None:
    broker = draw_options(0).brokers[0]
    config = server_config(draw_options(0), broker, session_ms=9000)
    disk = MemoryDisk()
    ids = iter(Uuid(bytes([number]) * 16) for number in range(1, 9))
    format_directories(disk, config, uuid_to_str(Uuid(b"c" * 16)), draw_options(0).features, ids.__next__, 0)
    topic_id = Uuid(b"t" * 16)
    create_log(disk, config.log_dirs[0], f"{config.log_dirs[0]}/t-0", LogConfig(), topic_id, 0)
    check_disk(disk.copy(), config, ManualClock(0), (), {("t", 0, topic_id): 0})
    check_disk(disk.copy(), config, ManualClock(0), (), {("t", 0, Uuid(b"u" * 16)): 5})
    with pytest.raises(InvariantViolation, match=LOG_START_IS_STORED):
        check_disk(disk, config, ManualClock(0), (), {("t", 0, topic_id): 5})
