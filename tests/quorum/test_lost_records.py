"""How a start handles a disk that has lost flushed records."""

import contextlib
import itertools
import random

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.log_store.interface import CorruptLogError
from pykraft.quorum.core.effects import EndRecovery, InstallSnapshot, ReplyWithRecords, TruncateTo
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import FetchResponse
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.quorum.storage import encode_proposal
from tests.quorum.lost_records import MARK, disk_with, flush, lose_everything_but, read_back
from tests.quorum.nodes import DIRECTORY, fetch_snapshot


def test_every_flipped_bit_of_the_last_batch_is_noticed() -> None:
    segment = f"{DIRECTORY}/{0:020}.log"
    for epochs in ([5], [5, 5], [3, 7]):
        size = len(disk_with(epochs).read(segment))
        last = size * (len(epochs) - 1) // len(epochs)
        for bit in range(8 * last, 8 * size):
            disk = disk_with(epochs)
            disk.flip_bit(segment, bit // 8, bit % 8)
            log, storage = read_back(disk)
            assert storage.recovery == Recovery(2 * len(epochs)), bit
            assert log.log_end_offset == 2 * (len(epochs) - 1) and storage.losses == 1


def test_flipped_bits_before_the_last_batch_are_noticed_or_refuse_the_start() -> None:
    segment = f"{DIRECTORY}/{0:020}.log"
    size = len(disk_with([5, 5, 5]).read(segment))
    refused = 0
    for bit in range(8 * size // 3, 16 * size // 3):
        disk = disk_with([5, 5, 5])
        disk.flip_bit(segment, bit // 8, bit % 8)
        try:
            _, storage = read_back(disk)
        except CorruptLogError:
            refused += 1
            continue
        assert storage.recovery == Recovery(6), bit
    assert refused > 0


def test_truncated_file_and_missing_segment_are_noticed() -> None:
    segment = f"{DIRECTORY}/{0:020}.log"
    size = len(disk_with([5, 5]).read(segment))
    for kept in range(size):
        disk = disk_with([5, 5])
        disk.open(segment).truncate(kept)
        assert read_back(disk)[1].recovery == Recovery(4), kept
    disk = disk_with([5, 5])
    disk.remove(segment)
    assert read_back(disk)[1].recovery == Recovery(4)


def test_power_loss_in_the_middle_of_a_write_is_no_loss() -> None:
    for seed in range(100):
        disk, rng = disk_with([5, 5]), random.Random(seed)
        log, storage = read_back(disk)
        storage._append(encode_proposal([b"three"], 4, 5, 0), 4, 5)
        disk.crash(rng, zero_tails=True)
        log, storage = read_back(disk)
        assert storage.recovery is None and log.log_end_offset == 4


def test_records_that_no_replica_counts_on_are_not_kept() -> None:
    disk = disk_with([5])
    log, storage = read_back(disk)
    storage._append(encode_proposal([b"three"], 2, 5, 0), 2, 3)
    log.flush()  # and killed before the mark was written
    assert read_back(disk)[0].log_end_offset == 2


def test_recovery_outlives_restarts_and_second_losses() -> None:
    disk = disk_with([5, 5, 5])
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    for _ in range(3):
        log, storage = read_back(disk)
        assert storage.recovery == Recovery(6) and storage.losses == 1
    storage._append(encode_proposal([b"other"] * 4, 2, 5, 0), 2, 6)
    flush(log, storage)
    assert read_back(disk)[1].recovery == Recovery(6), "its leader has not confirmed it yet"
    log, storage = read_back(disk)
    storage.apply(EndRecovery(6))
    log, storage = read_back(disk)
    assert storage.recovery is None and storage.losses == 1
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    assert read_back(disk)[1].losses == 2


def test_damaged_mark_is_a_loss_of_unknown_length() -> None:
    disk = disk_with([5])
    disk.flip_bit(MARK, len(disk.read(MARK)) - 10)
    assert read_back(disk)[1].recovery == Recovery(None)


def test_loss_of_a_damaged_mark_is_newer_than_any_that_a_leader_knows() -> None:
    disk = disk_with([5, 5])
    for _ in range(3):
        disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
        log, storage = read_back(disk)
        storage.apply(EndRecovery(log.log_end_offset))
        storage._append(encode_proposal([b"again"] * 4, 2, 5, 0), 2, 6)
        flush(log, storage)
        log.close()
    assert storage.losses == 3
    disk.flip_bit(MARK, len(disk.read(MARK)) - 10)
    _, storage = read_back(disk)
    assert storage.recovery == Recovery(None) and storage.losses > 3
    assert read_back(disk)[1].losses == storage.losses


def test_lost_vote_is_noticed_even_if_the_records_of_its_epoch_are_lost_too() -> None:
    disk = disk_with([3, 7])
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    for election in (None, ElectionState(3)):
        disk.remove(f"{DIRECTORY}/quorum-state")
        if election is not None:
            QuorumStateStore(disk, DIRECTORY).write(election)
        with pytest.raises(QuorumStateError, match="a vote may be lost"):
            read_back(disk)
        QuorumStateStore(disk, DIRECTORY).write(ElectionState(7))
    assert read_back(disk)[1].recovery == Recovery(4)


def test_leader_with_a_damaged_disk_never_answers_that_there_is_nothing_more() -> None:
    """An empty answer ends a recovery."""
    segment, header_bytes = f"{DIRECTORY}/{0:020}.log", 12  # base offset and length
    for byte, bit in itertools.product(range(header_bytes), range(8)):
        disk = disk_with([5, 5])
        log, storage = read_back(disk)
        assert log.read(2, 1 << 20) is not None  # the position where this ends is remembered
        position = len(disk.read(segment))
        storage._append(encode_proposal([b"three"], 4, 5, 0), 4, 5)
        flush(log, storage)
        disk.flip_bit(segment, position + byte, bit)
        response = FetchResponse("c", ReplicaKey(2), ErrorCode.NONE, 5, 2, 5)
        with contextlib.suppress(CorruptLogError):
            assert storage.with_records(ReplyWithRecords(1, response, 4, 5, 1 << 20)).payload, (byte, bit)


def test_log_without_a_mark_is_accepted_unchanged() -> None:
    """It was written before marks existed, or an operator has decided to continue."""
    disk = disk_with([5, 5])
    disk.remove(MARK)
    log, storage = read_back(disk)
    assert storage.recovery is None and log.log_end_offset == 4
    assert FlushedMarkFile(disk, DIRECTORY).read() == FlushedMark(4, 5)


@pytest.mark.parametrize("kept", [(), ("quorum-state",), (f"{0:020}.log", "quorum-state")])
def test_log_lost_with_its_mark_is_not_mistaken_for_a_new_one(kept: tuple[str, ...]) -> None:
    """A voter that started over would elect a leader without records it had acknowledged, or vote twice."""
    disk = disk_with([5, 5])
    lose_everything_but(disk, *kept)
    for name in set(kept) - {"quorum-state"}:
        disk.open(f"{DIRECTORY}/{name}").truncate(20)
    for _ in range(2):
        with pytest.raises(QuorumStateError, match=f"{MARK} is missing"):
            read_back(disk)


def test_lost_snapshot_that_was_fetched_is_noticed() -> None:
    disk = disk_with([5])
    log, storage = read_back(disk)
    snapshot_id = SnapshotId(9, 7)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(7, 2))
    fetch_snapshot(storage, snapshot_id, [b"state"], None, itertools.repeat(100))
    storage.apply(InstallSnapshot(snapshot_id))
    storage._append(encode_proposal([b"behind"], 9, 7, 0), 9, 10)
    flush(log, storage)
    storage.apply(TruncateTo(9))
    assert FlushedMarkFile(disk, DIRECTORY).read() == FlushedMark(9, 7)
    log.close()
    lose_everything_but(disk, "quorum-state", "flushed-offset")
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(6))
    with pytest.raises(QuorumStateError, match="a vote may be lost"):
        read_back(disk)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(7, 2))
    assert read_back(disk)[1].recovery == Recovery(9)


def test_observer_whose_log_is_lost_fetches_it_again() -> None:
    disk = disk_with([5, 5])
    lose_everything_but(disk)
    log, storage = read_back(disk, keeps_mark=False)
    assert log.log_end_offset == 0 and storage.recovery is None
