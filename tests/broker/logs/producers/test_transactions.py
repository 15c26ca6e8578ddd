"""Transactions in one partition: what may be appended, what readers may see, and what survives."""

import struct
from dataclasses import replace

import pytest

from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.producers.open_transactions import Transactions
from pykraft.broker.logs.producers.verification import UNVERIFIED
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker, build_marker, read_marker
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.compaction.record_filter import empty_batch
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.log_store.producer_snapshot import decode_snapshot, list_snapshots, snapshot_path
from pykraft.log_store.segment.reading import BadIndexError
from tests.broker.answers import refused
from tests.broker.at_once import now
from tests.broker.partitions import Events, acknowledge, make, replica, state
from tests.broker.transactional_world import KEY, World, check_replica, see
from tests.narrowing import present

ALONE = state(1, isr=(1,))
TV0, TV2 = 0, 2


@pytest.fixture
def leader() -> Partition:
    return replica(ALONE, high_watermark=0)


def data(
    producer_id: int, sequence: int, *, epoch: int = 0, transactional: bool = True, count: int = 1
) -> memoryview:
    return memoryview(
        bytearray(
            encode_batch(
                [RecordInput(None, b"v", (), 100 + sequence)] * count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=transactional,
            )
        )
    )


def send(
    partition: Partition, producer_id: int, sequence: int, *, epoch: int = 0, transactional: bool = True
) -> int:
    """A batch that the coordinator has approved if it has to; its offset."""
    batch = data(producer_id, sequence, epoch=epoch, transactional=transactional)
    header, guard = read_header(batch), None
    if transactional:
        guard = partition.begin_verification(header, 0, supports_epoch_bump=False)
    return partition.append_as_leader(batch, header, 0, all_acks=False, guard=guard).base_offset


def end(
    partition: Partition,
    producer_id: int,
    kind: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = TV0,
) -> int:
    marker = Marker(kind, coordinator_epoch)
    info = partition.end_transaction(EndOfTransaction(producer_id, epoch, marker, version), 500)
    return info.base_offset


# -- what readers may see --------------------------------------------------------------------------------


def test_open_transactions_hold_back_the_last_stable_offset(leader: Partition) -> None:
    send(leader, 1, 0, transactional=False)
    assert leader.last_stable_offset == 1
    send(leader, 2, 0)
    send(leader, 3, 0)
    send(leader, 1, 1, transactional=False)
    assert (leader.last_stable_offset, leader.high_watermark) == (1, 4)
    end(leader, 2, COMMIT)
    assert leader.last_stable_offset == 2
    end(leader, 3, ABORT)
    assert leader.last_stable_offset == leader.high_watermark == 6


def test_transaction_counts_as_open_until_its_marker_is_committed() -> None:
    leader = replica(state(1, isr=(1, 2)))
    send(leader, 2, 0)
    acknowledge(leader, 1, 2)
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    end(leader, 2, COMMIT)
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    acknowledge(leader, 2, 2)
    assert (leader.high_watermark, leader.last_stable_offset) == (2, 2)


def test_ended_transactions_hold_back_at_the_earliest_that_counts() -> None:
    transactions = Transactions()
    for producer_id, first in ((1, 0), (2, 1), (3, 2)):
        transactions.begin(producer_id, first)
    for producer_id, marker in ((2, 10), (1, 11), (3, 12)):
        transactions.end(producer_id, marker, COMMIT)
    found = [transactions.first_unstable_offset(high_watermark) for high_watermark in range(10, 14)]
    assert found == [0, 0, 2, None]


@pytest.mark.parametrize(("restored", "expected"), [([], None), ([(7, 9), (8, 5)], 5)])
def test_restored_transactions_are_all_that_hold_back_readers(
    restored: list[tuple[int, int]], expected: int | None
) -> None:
    transactions = Transactions()
    for producer_id, first in ((1, 0), (2, 1)):
        transactions.begin(producer_id, first)
    transactions.end(1, 3, COMMIT)
    assert transactions.first_unstable_offset(2) == 0
    transactions.restore(restored)
    assert transactions.first_unstable_offset(2) == transactions.first_open_offset == expected


def test_readers_are_told_of_what_was_aborted_and_of_nothing_after_it(leader: Partition) -> None:
    for number in range(6):
        send(leader, 1, 2 * number)
        send(leader, 1, 2 * number + 1)
        end(leader, 1, ABORT if number % 2 else COMMIT)
    piece = leader.read_stable(4, 60, at_least_one=True)
    assert piece is not None and piece.base_offset == 4
    (first, *_) = leader.aborted_in(piece, 4)
    assert first == AbortedTransaction(1, 3, 5, 6)
    everything = present(leader.read_stable(0, 10**6, at_least_one=True))
    assert [one.first_offset for one in leader.aborted_in(everything, 0)] == [3, 9, 15]


def test_reader_of_a_small_piece_is_told_of_few_transactions_behind_it(leader: Partition) -> None:
    """At most of those up to the next entry of the index, and of none of the next segment."""
    leader.log.config = replace(leader.log.config, segment_bytes=10**6, index_interval_bytes=200)
    for number in range(40):
        send(leader, 1, number)
        end(leader, 1, ABORT)
    bases = list(range(0, 80, 2))
    for offset in range(78):
        piece = present(leader.read_stable(offset, 60, at_least_one=True))
        told = [one.first_offset for one in leader.aborted_in(piece, offset)]
        needed = [first for first in bases if first + 1 >= offset and first <= offset]
        assert told[: len(needed)] == needed and told == bases[offset // 2 :][: len(told)]
        assert len(told) <= len(needed) + 3


def test_reader_of_the_end_of_a_segment_is_told_of_no_transaction_of_the_next(leader: Partition) -> None:
    while len(leader.log.segment_base_offsets) < 3:
        send(leader, 1, leader.log.log_end_offset // 2)
        end(leader, 1, ABORT)
    second = leader.log.segment_base_offsets[1]
    piece = present(leader.read_stable(second - 1, 10**6, at_least_one=True))
    assert [one.first_offset for one in leader.aborted_in(piece, second - 1)] == [(second - 1) // 2 * 2]


def test_reader_stays_below_the_last_stable_offset(leader: Partition) -> None:
    send(leader, 1, 0, transactional=False)
    send(leader, 2, 0)
    assert leader.read_stable(1, 1000, at_least_one=True) is None
    uncommitted = leader.read_committed(1, 1000, at_least_one=True)
    assert uncommitted is not None and uncommitted.base_offset == 1


def test_deleted_beginning_of_a_transaction_holds_back_nobody(leader: Partition) -> None:
    send(leader, 2, 0)
    send(leader, 2, 1)
    leader.delete_records(1)
    assert leader.last_stable_offset == leader.log.log_start_offset == 1
    send(leader, 2, 2)
    assert leader.last_stable_offset == 1
    end(leader, 2, ABORT)
    assert leader.last_stable_offset == 4


def test_follower_has_the_same_state_and_its_own_last_stable_offset(leader: Partition) -> None:
    send(leader, 2, 0)
    send(leader, 3, 0)
    end(leader, 2, ABORT, coordinator_epoch=5)
    follower = replica(ALONE, node_id=2)
    piece = present(leader.read_replica(0, 10**6, at_least_one=True))
    follower.append_as_follower(memoryview(piece.file.pread(piece.position, piece.size_bytes)), 0)
    follower.follow(2, 0)
    assert (follower.high_watermark, follower.last_stable_offset) == (2, 0)
    follower.follow(3, 0)
    assert follower.last_stable_offset == 1
    assert list(follower.log.iter_aborted()) == [AbortedTransaction(2, 0, 2, 1)]
    entry = follower.producers.entry(2)
    assert entry is not None and (entry.coordinator_epoch, entry.first_offset) == (5, -1)


# -- what may be appended --------------------------------------------------------------------------------


def test_marker_is_a_control_batch_as_kafka_writes_it(leader: Partition) -> None:
    send(leader, 7, 0, epoch=3)
    end(leader, 7, COMMIT, epoch=3, coordinator_epoch=9)
    (_, (header, batch)) = leader.log.iter_batches(0)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (
        0x30,
        7,
        3,
        -1,
    )
    assert (header.record_count, header.max_timestamp) == (1, 500)
    assert batch.endswith(b"\x08" + struct.pack(">hh", 0, 1) + b"\x0c" + struct.pack(">hi", 0, 9) + b"\0")
    assert read_marker(header, batch) == Marker(COMMIT, 9)


def test_batch_outside_of_the_transaction_of_its_producer_is_refused(leader: Partition) -> None:
    send(leader, 2, 0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(leader, 2, 1, transactional=False)
    send(leader, 2, 1)
    end(leader, 2, COMMIT)
    send(leader, 2, 2, transactional=False)
    assert leader.log.log_end_offset == 4


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (TV0, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TV0, 5, None),
        (TV0, 6, None),
        (TV2, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TV2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TV2, 6, None),
    ],
)
def test_marker_of_an_open_transaction_by_its_epoch(
    leader: Partition, version: int, epoch: int, code: ErrorCode | None
) -> None:
    send(leader, 2, 0, epoch=5)
    if code is None:
        end(leader, 2, COMMIT, epoch=epoch, version=version)
        assert leader.last_stable_offset == 2
    else:
        with refused(code):
            end(leader, 2, COMMIT, epoch=epoch, version=version)
        assert (leader.log.log_end_offset, leader.last_stable_offset) == (1, 0)


def test_repeated_marker_of_a_bumped_epoch_is_written_again(leader: Partition) -> None:
    send(leader, 2, 0)
    end(leader, 2, ABORT, epoch=1, version=TV2)
    end(leader, 2, ABORT, epoch=1, version=TV2)
    assert leader.last_stable_offset == leader.log.log_end_offset == 3
    assert len(list(leader.log.iter_aborted())) == 1
    send(leader, 2, 0, epoch=1)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):  # it would end the next transaction
        end(leader, 2, ABORT, epoch=1, version=TV2)
    assert leader.last_stable_offset == 3


def test_transaction_of_the_last_epoch_there_is_can_be_ended(leader: Partition) -> None:
    send(leader, 2, 0, epoch=0x7FFF)
    end(leader, 2, COMMIT, epoch=0x7FFF, version=TV2)
    assert leader.last_stable_offset == 2


def test_deposed_coordinator_is_fenced(leader: Partition) -> None:
    send(leader, 2, 0)
    end(leader, 2, COMMIT, coordinator_epoch=4)
    send(leader, 2, 1)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        end(leader, 2, ABORT, coordinator_epoch=3)
    assert leader.last_stable_offset == 2
    end(leader, 2, ABORT, coordinator_epoch=4)
    assert leader.last_stable_offset == 4


def test_epoch_of_a_marker_begins_at_sequence_zero(leader: Partition) -> None:
    send(leader, 2, 0)
    send(leader, 2, 1)
    end(leader, 2, COMMIT, epoch=1, version=TV2)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        send(leader, 2, 2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(leader, 2, 2, epoch=1)
    send(leader, 2, 0, epoch=1)


def test_marker_waits_for_enough_replicas() -> None:
    leader = replica(ALONE, min_isr=2)
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        end(leader, 2, COMMIT)
    assert leader.log.log_end_offset == 0


# -- verification ----------------------------------------------------------------------------------------


def test_first_batch_of_a_transaction_needs_its_guard(leader: Partition) -> None:
    batch = data(2, 0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        leader.append_as_leader(batch, read_header(batch), 0, all_acks=False)
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=False)
    with refused(ErrorCode.INVALID_TXN_STATE):  # of another producer
        other = data(3, 0)
        leader.append_as_leader(other, read_header(other), 0, all_acks=False, guard=guard)
    assert leader.log.log_end_offset == 0
    leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)
    following = data(2, 1)
    assert leader.begin_verification(read_header(following), 0, supports_epoch_bump=False) is None
    leader.append_as_leader(following, read_header(following), 0, all_acks=False)
    assert leader.log.log_end_offset == 2


def test_answer_about_a_transaction_that_has_ended_meanwhile_is_void(leader: Partition) -> None:
    batch = data(2, 0)
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=False)
    end(leader, 2, ABORT)
    with refused(ErrorCode.INVALID_TXN_STATE):
        leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)
    again = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=False)
    assert again is not guard
    assert leader.last_stable_offset == leader.log.log_end_offset == 1


def test_marker_of_the_last_transaction_keeps_the_guard_of_the_next(leader: Partition) -> None:
    send(leader, 2, 0)
    batch = data(2, 0, epoch=1)
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=True)
    end(leader, 2, COMMIT, epoch=1, version=TV2)
    leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)
    assert leader.last_stable_offset == 2


def test_marker_voids_the_verification_of_a_producer_that_went_back_to_the_old_rules(
    leader: Partition,
) -> None:
    left = data(2, 0, epoch=1)
    leader.begin_verification(read_header(left), 0, supports_epoch_bump=True)  # and no answer comes
    batch = data(2, 0, epoch=2)
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=False)
    end(leader, 2, ABORT, epoch=2)  # of its own transaction, which nobody will end again
    with refused(ErrorCode.INVALID_TXN_STATE):
        leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)
    assert leader.last_stable_offset == leader.log.log_end_offset


def test_batch_does_not_overtake_one_that_was_not_verified(leader: Partition) -> None:
    send(leader, 2, 0)
    end(leader, 2, COMMIT)
    leader.begin_verification(read_header(data(2, 1)), 0, supports_epoch_bump=False)  # and no answer comes
    later = data(2, 2)
    guard = leader.begin_verification(read_header(later), 0, supports_epoch_bump=False)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.append_as_leader(later, read_header(later), 0, all_acks=False, guard=guard)
    send(leader, 2, 1)


def test_unknown_producer_with_bumped_epochs_begins_at_zero(leader: Partition) -> None:
    leader.producers.complete = False  # producers were forgotten
    batch = data(2, 4)
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=True)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)
    leader.producers.verifications.clear()
    guard = leader.begin_verification(read_header(batch), 0, supports_epoch_bump=False)
    leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=guard)


def test_verification_of_an_old_epoch_is_refused_at_once(leader: Partition) -> None:
    send(leader, 2, 0, epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.begin_verification(read_header(data(2, 0, epoch=2)), 0, supports_epoch_bump=False)


def test_verification_that_comes_to_nothing_expires(leader: Partition) -> None:
    leader.begin_verification(read_header(data(2, 0)), 1_000, supports_epoch_bump=False)
    leader.producers.expire(5_999, 5_000)
    assert len(leader.producers.verifications) == 1
    leader.producers.expire(6_000, 5_000)
    assert len(leader.producers.verifications) == 0


def test_unverified_batch_is_taken_where_verification_is_off(leader: Partition) -> None:
    batch = data(2, 0)
    leader.append_as_leader(batch, read_header(batch), 0, all_acks=False, guard=UNVERIFIED)
    assert leader.last_stable_offset == 0


def test_idle_producer_with_an_open_transaction_is_kept(leader: Partition) -> None:
    send(leader, 2, 0)
    send(leader, 3, 0, transactional=False)
    for now_ms in (0, 10_000):
        leader.producers.expire(now_ms, 5_000)
    assert set(leader.producers.capture()) == {2}
    end(leader, 2, ABORT)
    assert list(leader.log.iter_aborted()) == [AbortedTransaction(2, 0, 2, 3)]


# -- what survives ---------------------------------------------------------------------------------------


def test_snapshot_has_coordinator_epoch_and_first_offset() -> None:
    world = World(1, segment_bytes=1 << 20)
    world.produce(10)
    world.coordinator_epoch = 6
    world.end(11, ABORT, epoch=4)
    world.produce(11, epoch=4)
    now(world.logs.stop(1, {}))
    (offset,) = (one for one in list_snapshots(world.disk, "/d/t-0") if one > 0)
    path = snapshot_path("/d/t-0", offset)
    entries = decode_snapshot(world.disk.read(path), path)
    first = see(world.log).first_offsets
    assert [
        (one.producer_id, one.coordinator_epoch, one.current_transaction_first_offset) for one in entries
    ] == [
        (10, -1, first[10]),
        (11, 6, first[11]),
    ]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_start_knows_open_and_ended_transactions(how: str) -> None:
    world = World(2)
    world.produce(10)
    for _ in range(30):
        world.produce(11)
        world.end(11, ABORT)
    world.partition.handle_follower_fetch(2, world.log.log_end_offset, 1, 0, 0)
    world.store_high_watermark()  # and nothing is flushed
    world.restart(how)
    check_replica(world.partition, world.rng)
    assert len(list(world.log.iter_aborted())) == 30
    world.end(10, COMMIT)
    world.partition.handle_follower_fetch(2, world.log.log_end_offset, 1, 0, 0)
    assert world.partition.last_stable_offset == world.log.log_end_offset


def test_what_is_aborted_while_producers_are_read_again_survives_a_kill() -> None:
    world, source = World(7, segment_bytes=1 << 20), make()
    source.apply(ALONE, 0)
    send(source, 2, 0)
    end(source, 2, ABORT)
    send(source, 2, 1)
    end(source, 2, ABORT)
    piece = present(source.read_replica(0, 10**6, at_least_one=True))
    data = piece.file.pread(piece.position, piece.size_bytes)
    world.apply(2)
    follower = world.partition
    follower.append_as_follower(memoryview(bytearray(data)), 0)
    world.rebuilds = False
    follower.truncate_to(1)
    assert follower.producers.is_behind
    follower.append_as_follower(memoryview(bytearray(data)), 0)
    follower.follow(4, 0)
    assert (follower.high_watermark, follower.last_stable_offset) == (4, 0)
    world.flush()
    world.restart("kill")
    assert list(world.log.iter_aborted()) == list(source.log.iter_aborted())
    check_replica(world.partition, world.rng)


def test_marker_above_the_high_watermark_still_holds_back_after_a_start() -> None:
    world = World(3, segment_bytes=1 << 20)
    world.produce(10)
    world.partition.handle_follower_fetch(2, world.log.log_end_offset, 1, 0, 0)
    high_watermark = world.partition.high_watermark
    world.end(10, COMMIT)
    world.restart("stop")
    assert (world.partition.high_watermark, world.partition.last_stable_offset) == (high_watermark, 0)
    world.partition.handle_follower_fetch(2, world.log.log_end_offset, 1, 0, 0)
    assert world.partition.last_stable_offset == world.log.log_end_offset


def test_truncation_takes_the_entries_of_markers_that_are_gone(leader: Partition) -> None:
    send(leader, 2, 0)
    end(leader, 2, ABORT)
    send(leader, 3, 0)
    end(leader, 3, ABORT)
    leader.apply(state(2, epoch=1, version=1), 0)
    leader.truncate_to(3)
    assert list(leader.log.iter_aborted()) == [AbortedTransaction(2, 0, 1, 2)]
    assert leader.last_stable_offset == 2
    leader.truncate_to(1)
    assert list(leader.log.iter_aborted()) == []
    assert not any(name.endswith(".txnindex") for name in leader.log.disk.list("t-0"))


def damaged(world: World) -> str:
    """A sealed segment with entries; the path of its transaction index."""
    for _ in range(20):
        world.produce(11)
        world.end(11, ABORT)
    world.partition.handle_follower_fetch(2, world.log.log_end_offset, 1, 0, 0)
    assert len(world.log.segment_base_offsets) > 2
    return f"/d/t-0/{world.log.segment_base_offsets[0]:020d}.txnindex"


@pytest.mark.parametrize("content", [b"x", bytes(34), b"\xff" * 68], ids=["cut", "zeros", "ones"])
def test_damaged_index_is_built_again_from_the_log(content: bytes) -> None:
    world = World(4)
    path = damaged(world)
    good = world.disk.read(path)
    now(world.logs.stop(1, {KEY: world.partition.high_watermark}))
    world.disk.write_atomic(path, content)
    world.start()
    world.log.on_bad_index = None  # built at once
    piece = present(world.partition.read_stable(0, 10**6, at_least_one=True))
    world.partition.aborted_in(piece, 0)
    check_replica(world.partition, world.rng)
    assert world.disk.read(path) == good


def test_missing_index_is_found_by_the_scrub() -> None:
    world = World(5)
    path = damaged(world)
    good = world.disk.read(path)
    now(world.logs.stop(1, {KEY: world.partition.high_watermark}))
    world.disk.remove(path)
    world.start()
    doubted: list[BadIndexError] = []
    world.log.on_bad_index = doubted.append
    for base_offset in world.log.segment_base_offsets:
        scrub = present(world.log.scrub_segment(base_offset))
        while not scrub.is_done:
            scrub.step()
        if scrub.has_bad_transactions:
            world.log.doubt_indexes(base_offset, transactions=True)
    (error,) = doubted
    build = present(world.log.prepare_index_build(error.segment))
    build.run()
    assert world.log.complete_index_build(build)
    assert world.disk.read(path) == good


def test_what_is_aborted_while_an_index_is_built_again_is_kept(leader: Partition) -> None:
    for number in range(4):
        send(leader, 2, number)
        end(leader, 2, ABORT)
    (segment, *_) = leader.log._segments
    good = list(leader.log.iter_aborted())
    segment.aborted.is_bad = True
    build = present(leader.log.prepare_index_build(segment))
    send(leader, 2, 4)
    end(leader, 2, ABORT)
    build.run()
    assert leader.log.complete_index_build(build)
    assert list(leader.log.iter_aborted()) == [*good, AbortedTransaction(2, 8, 9, 10)]


def test_copy_of_a_log_in_another_directory_has_its_aborted_transactions() -> None:
    world = World(6)
    for number in range(25):
        world.produce(10 + number % 3)
        world.end(10 + number % 3, (ABORT, COMMIT)[number % 2])
    future = FutureLog.create(world.disk, "/e", world.logs.logs[KEY], "0" * 32, 0)
    while (piece := future.next_piece(300)) is not None:
        future.append(piece, piece.file.pread(piece.position, piece.size_bytes), 0)
    assert list(future.log.iter_aborted()) == list(world.log.iter_aborted()) != []


def test_copy_that_was_truncated_has_its_aborted_transactions() -> None:
    """Wherever it is cut: also within a transaction that is aborted later."""
    world = World(6)
    for number in range(12):
        world.produce(10 + number % 4)
        if number % 3:
            world.end(10 + (number + 2) % 4, ABORT)
    future = FutureLog.create(world.disk, "/e", world.logs.logs[KEY], "0" * 32, 0)
    expected = list(world.log.iter_aborted())
    for cut in range(world.log.log_end_offset, -1, -1):
        future.note_truncation(cut)
        assert future.must_follow
        future.follow(future.take_step())
        assert future.log.log_end_offset <= cut and not future.must_follow
        while (piece := future.next_piece(300)) is not None:
            future.append(piece, piece.file.pread(piece.position, piece.size_bytes), 0)
        assert list(future.log.iter_aborted()) == expected
    assert len(expected) > 3


def test_retention_and_deletion_take_the_index_along() -> None:
    disk = make().log.disk
    config = LogConfig(segment_bytes=150, index_interval_bytes=100)
    partition = Partition("t", Uuid(b"i" * 16), 0, 1, Log.open(disk, "x-0", config, now_ms=0), Events())
    partition.apply(ALONE, 0)
    for number in range(6):
        send(partition, 2, number)
        end(partition, 2, ABORT)
    names = [name for name in disk.list("x-0") if name.endswith(".txnindex")]
    assert len(names) > 3
    partition.log.advance_log_start(partition.log.log_end_offset)
    partition.log.delete_retired_segments(partition.log.log_end_offset)
    left = [name for name in disk.list("x-0") if name.endswith(".txnindex")]
    assert len(left) < 2 < len(names)


def test_marker_that_compaction_emptied_means_nothing() -> None:
    batch = build_marker(1, 0, Marker(ABORT, 2), 5)
    header = read_header(batch)
    assert read_marker(header, batch) == Marker(ABORT, 2)
    empty = empty_batch(header)
    assert read_marker(read_header(empty), empty) is None
