"""The mark of the flushed end: what is read back after a torn write, a flipped bit, a full file."""

import random

import pytest

from pykraft.quorum.bootstrap import BOOTSTRAP_CHECKPOINT, format_log
from pykraft.quorum.flushed_mark import ENTRY_BYTES, MAX_FILE_BYTES, FlushedMark, FlushedMarkFile, encode_mark
from pykraft.runtime.simulated.memory_disk import MemoryDisk

DIRECTORY = "/data"


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs(DIRECTORY)
    return disk


def reopened(disk: MemoryDisk) -> FlushedMarkFile:
    file = FlushedMarkFile(disk, DIRECTORY)
    file.read()
    return file


def test_without_a_file_nothing_was_flushed(disk: MemoryDisk) -> None:
    assert FlushedMarkFile(disk, DIRECTORY).read() is None


def test_last_entry_counts(disk: MemoryDisk) -> None:
    file = FlushedMarkFile(disk, DIRECTORY)
    for end_offset in (3, 7, 7, 5, 20):
        file.advance(end_offset, 2)
    assert reopened(disk).mark == FlushedMark(20, 2)
    file.lower(11, 1)
    file.lower(15, 2)
    assert reopened(disk).mark == FlushedMark(11, 1)
    for end_offset in (8, 30, 30):
        file.replace(end_offset, 3)
        assert reopened(disk).mark == FlushedMark(end_offset, 3)


def test_mark_of_a_recovering_replica_is_kept(disk: MemoryDisk) -> None:
    mark = FlushedMark(9, 3, losses=1, is_recovering=True)
    FlushedMarkFile(disk, DIRECTORY).write(mark)
    file = reopened(disk)
    file.advance(12, 4)
    file.lower(2, 1)
    file.replace(20, 1)
    assert reopened(disk).mark == mark


def test_replica_without_a_mark_gets_none(disk: MemoryDisk) -> None:
    file = FlushedMarkFile(disk, DIRECTORY)
    file.lower(2, 1)
    file.replace(2, 1)
    assert reopened(disk).mark is None


def test_file_stays_small(disk: MemoryDisk) -> None:
    file = FlushedMarkFile(disk, DIRECTORY)
    count = 2 * MAX_FILE_BYTES // ENTRY_BYTES
    for end_offset in range(1, count + 1):
        file.advance(end_offset, 1)
        assert len(disk.read(file.path)) <= MAX_FILE_BYTES + ENTRY_BYTES
    assert reopened(disk).mark == FlushedMark(count, 1)


@pytest.mark.parametrize("zeros", [False, True])
def test_torn_entry_leaves_the_previous_one(disk: MemoryDisk, zeros: bool) -> None:
    before, torn = encode_mark(FlushedMark(3, 1)), encode_mark(FlushedMark(0x0102030405060708, 1))
    for kept in range(ENTRY_BYTES):
        tail = bytes(ENTRY_BYTES - kept) if zeros else b""
        disk.write_atomic(f"{DIRECTORY}/flushed-offset", before + torn[:kept] + tail)
        assert reopened(disk).mark == FlushedMark(3, 1), kept


def test_sectors_may_reach_the_disk_in_any_order(disk: MemoryDisk) -> None:
    """Otherwise a cluster that loses power everywhere would mistake that for a loss."""
    torn = encode_mark(FlushedMark(0x0102030405060708, 1))
    for count in range(1, 200):
        before = encode_mark(FlushedMark(3, 1)) * count
        end = len(before) + len(torn)
        unwritten = max((end - 1) // 512 * 512 - len(before), 0)
        if unwritten:
            disk.write_atomic(f"{DIRECTORY}/flushed-offset", before + bytes(unwritten) + torn[unwritten:])
            assert reopened(disk).mark == FlushedMark(3, 1), count


def test_any_flipped_bit_of_the_last_entry_makes_the_end_unknown(disk: MemoryDisk) -> None:
    for bit in range(8 * ENTRY_BYTES):
        file = FlushedMarkFile(disk, DIRECTORY)
        disk.write_atomic(file.path, encode_mark(FlushedMark(3, 1)) + encode_mark(FlushedMark(5, 1)))
        disk.flip_bit(file.path, ENTRY_BYTES + bit // 8, bit % 8)
        assert file.read() == FlushedMark(None), bit


@pytest.mark.parametrize("content", [b"", b"x", bytes(ENTRY_BYTES), b"\xff" * 100])
def test_invalid_mark_makes_the_end_unknown(disk: MemoryDisk, content: bytes) -> None:
    disk.write_atomic(f"{DIRECTORY}/flushed-offset", content)
    assert reopened(disk).mark == FlushedMark(None)


def test_mark_survives_a_power_loss_as_soon_as_it_has_advanced() -> None:
    for seed in range(200):
        disk, rng = MemoryDisk(), random.Random(seed)
        disk.make_dirs(DIRECTORY)
        end_offset = 0
        for _ in range(6):
            file = reopened(disk)
            assert file.mark is None or file.mark.end_offset == end_offset
            for _ in range(rng.randrange(5)):
                end_offset += 1
                file.advance(end_offset, 1)
            disk.crash(rng, zero_tails=True)


@pytest.mark.parametrize(
    ("held", "may_vote", "is_marked"),
    [
        ((), True, True),
        ((BOOTSTRAP_CHECKPOINT,), True, True),
        (("quorum-state.tmp",), True, True),
        (("00000000000000000000.log",), True, False),
        ((), False, False),
    ],
)
def test_only_an_empty_log_of_a_replica_that_may_vote_is_formatted_with_a_mark(
    disk: MemoryDisk, held: tuple[str, ...], may_vote: bool, is_marked: bool
) -> None:
    for name in held:
        disk.write_atomic(f"{DIRECTORY}/{name}", b"")
    format_log(disk, DIRECTORY, now_ms=0, may_vote=may_vote)
    assert (reopened(disk).mark == FlushedMark(0)) is is_marked
