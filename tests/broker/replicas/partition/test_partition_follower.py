"""One replica that follows: what it accepts from its leader, and what it keeps when the leader changes."""

from dataclasses import replace

import pytest

from pykraft.broker.replicas.partition.follower_batches import begin_within_span
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset
from pykraft.log_store.compaction.gaps import spanning_batch
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import refused
from tests.broker.partitions import Events, append, batch, make, replica, state, stored
from tests.narrowing import present


@pytest.mark.parametrize(("epoch", "kept"), [(1, 1), (2, 2), (3, 0)])
def test_follower_accepts_only_what_its_leader_can_have_written_in_its_epoch(epoch: int, kept: int) -> None:
    # A leader that was deposed and truncated may send, from a slice queued before, its successor's bytes.
    partition = replica(state(2, epoch=1, version=1))
    partition.append_as_follower(memoryview(stored(0, 1)), 0)
    partition.apply(state(3, epoch=2, version=2), 0)
    data = memoryview(stored(1, epoch) + stored(2, 3))
    with refused(ErrorCode.CORRUPT_MESSAGE):
        partition.append_as_follower(data, 0)
    assert (partition.log.log_end_offset, partition.log.latest_epoch) == (1, 1)
    if kept:
        partition.append_as_follower(data[: len(data) // 2], 0)
        assert partition.log.log_end_offset == 2


def test_rest_of_a_span_stands_for_what_the_follower_lacks() -> None:
    after = stored(9, 3)
    data = memoryview(spanning_batch(2, 9, 3) + after)
    for log_end_offset in range(3, 9):
        expected = spanning_batch(log_end_offset, 9, 3) + after
        assert bytes(begin_within_span(data, log_end_offset)) == expected
    for log_end_offset in (2, 9):
        assert begin_within_span(data, log_end_offset) is data


def test_follower_accepts_no_gap_that_compaction_cannot_have_left() -> None:
    partition = replica(state(2))
    data = batch(b"rotten offset")
    assign_offset(data, 0, 1 << 20, 0)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        partition.append_as_follower(memoryview(data), 0)
    assert partition.log.log_end_offset == 0
    partition.log.config = replace(partition.log.config, cleanup_policy=frozenset({"compact"}))
    partition.append_as_follower(memoryview(data), 0)
    assert partition.log.log_end_offset == (1 << 20) + 1


def test_follower_keeps_nothing_of_a_damaged_response_and_skips_what_it_has() -> None:
    partition = replica(state(2))
    batches = []
    for offset in range(3):
        data = batch(b"%d" % offset)
        assign_offset(data, 0, offset, 0)
        batches.append(bytes(data))
    damaged = bytearray(b"".join(batches))
    damaged[-1] ^= 1
    with refused(ErrorCode.CORRUPT_MESSAGE):
        partition.append_as_follower(memoryview(damaged), 0)
    assert partition.log.log_end_offset == 0
    partition.append_as_follower(memoryview(batches[0] + batches[1][:-1]), 0)
    assert partition.log.log_end_offset == 1
    partition.append_as_follower(memoryview(b"".join(batches)), 0)
    assert partition.log.log_end_offset == 3
    partition.follow(2, 0)
    assert partition.high_watermark == 2
    partition.follow(1, 0)
    assert partition.high_watermark == 2


def test_follower_refuses_an_epoch_that_goes_back() -> None:
    partition = replica(state(2, epoch=3, version=1))
    partition.append_as_follower(memoryview(stored(0, 1) + stored(1, 3)), 0)
    with pytest.raises(KafkaError):
        partition.append_as_follower(memoryview(stored(2, 2)), 0)
    assert [(e.epoch, e.start_offset) for e in partition.log.epoch_cache.entries] == [(1, 0), (3, 1)]


def test_follower_that_led_without_writing_does_not_diverge(caplog: pytest.LogCaptureFixture) -> None:
    leader, follower = make(2), make(1)
    for partition in (leader, follower):
        partition.apply(state(1, epoch=1), 0)
    data = batch()
    append(follower)
    assign_offset(data, 0, 0, 1)
    leader.append_as_follower(data, 0)
    follower.apply(state(1, epoch=2, version=1), 0)  # leads again and writes nothing
    for partition in (leader, follower):
        partition.apply(state(2, epoch=3, version=2), 0)
    append(leader)
    assert leader.check_follower(1, follower.log.log_end_offset, follower.log.latest_epoch) is None


def test_truncation_removes_only_the_producers_of_the_tail() -> None:
    partition = replica(state(1))
    for sequence in range(12):
        append(partition, producer_id=4, producer_epoch=0, base_sequence=sequence)
    append(partition, producer_id=9, producer_epoch=0, base_sequence=0)
    partition.apply(state(2, epoch=1, version=1), 0)
    partition.truncate_to(3)  # all that was remembered of 4, and more
    known = partition.producers.entry(4)
    assert known is not None and [b.first_sequence for b in known.batches] == [0, 1, 2]
    assert partition.producers.entry(9) is None
    partition.apply(state(1, epoch=2, version=2), 0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(partition, producer_id=4, producer_epoch=0, base_sequence=12)
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=2).base_offset == 2
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=3).base_offset == 3


def test_starting_over_after_deleted_records_removes_producers() -> None:
    partition = replica(state(2))
    partition.append_as_follower(
        memoryview(stored(0, 0, producer_id=4, producer_epoch=0, base_sequence=0)), 0
    )
    partition.restart_at(50)
    partition.apply(state(1, epoch=1, version=1), 0)
    # The records of 4 and 5 between 1 and 50 are gone here; their next ones are still in order.
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=31).base_offset == 50
    assert append(partition, producer_id=5, producer_epoch=0, base_sequence=7).base_offset == 51


def test_state_rebuilt_from_a_log_without_its_beginning_accepts_unknown_producers_at_any_sequence() -> None:
    log = Log.open(MemoryDisk(), "t-0", LogConfig(), now_ms=0, log_start_offset=5)
    partition = Partition("t", Uuid(b"i" * 16), 0, 1, log, Events())
    partition.apply(state(1), 0)
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=9).base_offset == 5


def test_empty_log_that_starts_within_a_batch_of_its_leader_begins_with_that_batch() -> None:
    """As Kafka's follower does; it could never append otherwise."""
    partition = replica(state(2))
    partition.restart_at(8)
    records = [RecordInput(None, b"v", (), 1000)] * 4
    first = encode_batch(records, base_offset=6, leader_epoch=0)
    before = encode_batch(records, base_offset=2, leader_epoch=0)
    assert partition.append_as_follower(memoryview(before + first), 0) == len(first)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (6, 10)
    partition.follow(10, 8)
    assert (partition.log.log_start_offset, partition.high_watermark) == (8, 10)


def test_log_that_ends_at_the_leaders_log_start_begins_with_the_batch_that_holds_it() -> None:
    """After an unclean election the leader may have deleted all that both have, up to within a batch."""
    partition = replica(state(2, epoch=1))
    partition.append_as_follower(memoryview(b"".join(stored(offset, 0) for offset in range(8))), 0)
    batch = encode_batch([RecordInput(None, b"v", (), 1000)] * 4, base_offset=6, leader_epoch=1)
    with pytest.raises(KafkaError):
        partition.append_as_follower(memoryview(batch), 0, 7)  # the leader still has 7: another one
    assert partition.log.log_end_offset == 8
    assert partition.append_as_follower(memoryview(batch), 0, 8) == len(batch)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (6, 10)
    partition.follow(10, 8)
    assert (partition.log.log_start_offset, partition.high_watermark) == (8, 10)


def test_log_that_starts_beyond_what_its_leader_has_of_its_epoch_begins_anew_there() -> None:
    """An unclean election: the leader has lost what was deleted here, and all that followed."""
    partition = replica(state(2))
    partition.restart_at(3)
    partition.append_as_follower(memoryview(stored(3, 0)), 0)
    leader = replica(state(2, epoch=3), 2)
    end = present(leader.check_follower(1, partition.log.log_end_offset, partition.log.latest_epoch))
    assert partition.truncate_to_divergence(end.epoch, end.end_offset) == 0
    assert (partition.log.log_start_offset, partition.high_watermark) == (0, 0)
    partition.append_as_follower(memoryview(stored(0, 0)), 0)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("rot", [None, -1], ids=["not empty", "damaged batch"])
def test_log_is_not_started_over_for_a_batch_that_cannot_follow_it(rot: int | None) -> None:
    partition = replica(state(2))
    partition.restart_at(8)
    if rot is None:
        partition.append_as_follower(memoryview(stored(8, 0)), 0)
    end_offset = partition.log.log_end_offset
    data = bytearray(encode_batch([RecordInput(None, b"v", (), 1000)] * 4, base_offset=6, leader_epoch=0))
    if rot is not None:
        data[rot] ^= 1
    with refused(ErrorCode.CORRUPT_MESSAGE):
        partition.append_as_follower(memoryview(data), 0)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (8, end_offset)


@pytest.mark.parametrize(
    ("high_watermark", "log_start", "expected"),
    [
        (3, 2, (3, 2)),
        (3, 3, (3, 3)),
        (3, 5, (5, 5)),
        (-1, 5, (5, 5)),
        (3, 9, (8, 8)),
        (9, 9, (8, 8)),
        (9, 0, (8, 0)),
    ],
)
def test_high_watermark_stays_between_the_log_start_and_the_log_end_whatever_the_leader_says(
    high_watermark: int, log_start: int, expected: tuple[int, int]
) -> None:
    partition = replica(state(2))
    partition.append_as_follower(memoryview(b"".join(stored(offset, 0) for offset in range(8))), 0)
    partition.follow(high_watermark, log_start)
    assert (partition.high_watermark, partition.log.log_start_offset) == expected


def test_log_start_that_moves_below_the_stable_offset_leaves_it() -> None:
    partition = replica(state(2))
    partition.append_as_follower(memoryview(b"".join(stored(offset, 0) for offset in range(8))), 0)
    for log_start in (0, 3, 6):
        partition.follow(6, log_start)
        assert (partition.log.log_start_offset, partition.last_stable_offset) == (log_start, 6)
    partition.follow(6, 7)
    assert (partition.high_watermark, partition.last_stable_offset) == (7, 7)


def test_high_watermark_below_log_start_is_raised() -> None:
    partition = replica(state(2))
    partition.restart_at(50)
    assert (partition.high_watermark, partition.log.log_end_offset) == (50, 50)
    partition.append_as_follower(memoryview(stored(50, 0)), 0)
    partition.follow(51, 51)
    assert (partition.high_watermark, partition.log.log_start_offset) == (51, 51)


def test_image_of_an_older_leader_epoch_changes_nothing() -> None:
    partition = replica(state(1, epoch=3, version=5))
    assert not partition.apply(state(2, epoch=2, version=4), 0)
    assert partition.is_leader and partition.leader_epoch == 3
