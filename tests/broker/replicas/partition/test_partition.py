"""One replica that leads: its high watermark, and what followers and consumers see of it."""

import errno

import pytest

from pykraft.broker.replicas.leading.offset_lookup import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    FoundOffset,
    find_offset,
)
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset
from pykraft.log_store.interface import CorruptLogError, TimestampOffset
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.batch_fields import ProducerFields
from tests.broker.answers import refused
from tests.broker.at_once import now
from tests.broker.partitions import (
    Events,
    Waiter,
    acknowledge,
    always,
    append,
    batch,
    replica,
    state,
    stored,
)


def test_high_watermark_is_the_smallest_end_over_the_isr() -> None:
    partition = replica(state(1))
    for _ in range(3):
        append(partition)
    waiter = Waiter()
    partition.committed_waiters.add(3, waiter)
    acknowledge(partition, 3, 2)
    assert partition.high_watermark == 0
    acknowledge(partition, 2, 3)
    assert (partition.high_watermark, waiter.outcome) == (2, None)
    acknowledge(partition, 3, 3)
    assert (partition.high_watermark, waiter.outcome) == (3, "committed")


def test_late_fetch_of_a_previous_incarnation_acknowledges_nothing() -> None:
    partition = replica(state(1))
    append(partition)
    acknowledge(partition, 0, 2, 3, epoch=8)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        acknowledge(partition, 1, 2, epoch=7)
    acknowledge(partition, 1, 3, epoch=8)
    assert partition.high_watermark == 0


def test_diverging_follower_gets_the_diverging_epoch_and_acknowledges_nothing() -> None:
    partition = replica(state(1, epoch=2))
    append(partition)
    end = partition.check_follower(2, 5, 1)
    assert end is not None and (end.epoch, end.end_offset) == (1, 0)
    end = partition.check_follower(2, 5, 2)
    assert end is not None and (end.epoch, end.end_offset) == (2, 1)
    assert partition.check_follower(2, 1, 2) is None
    with pytest.raises(KafkaError):
        partition.check_follower(9, 0, -1)


async def look_up(log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
    return log.prepare_lookup(timestamp_ms).run()


def found(partition: Partition, timestamp: int) -> FoundOffset:
    return now(find_offset(partition, timestamp, look_up, is_replica=False))


def test_new_leader_does_not_show_an_end_that_may_move_back() -> None:
    partition = replica(state(2))
    partition.append_as_follower(memoryview(stored(0, 0)), 0)
    partition.apply(state(1, epoch=1, version=1), 0)
    with refused(ErrorCode.OFFSET_NOT_AVAILABLE):
        found(partition, LATEST)
    assert found(partition, EARLIEST).offset == 0
    acknowledge(partition, 1, 2, 3)
    assert found(partition, LATEST).offset == 1
    assert found(partition, MAX_TIMESTAMP).offset == 0
    assert found(partition, 1000).offset == 0
    assert found(partition, 1001).offset == -1


def test_uncommitted_records_are_found_by_no_consumer() -> None:
    partition = replica(state(1))
    append(partition)
    assert found(partition, 0).offset == -1
    assert partition.read_committed(0, 1000, at_least_one=True) is None
    assert partition.read_replica(0, 1000, at_least_one=True) is not None


def test_duplicate_of_an_uncommitted_batch_waits_like_the_original() -> None:
    partition = replica(state(1))
    ids: ProducerFields = {"producer_id": 4, "producer_epoch": 0}
    append(partition, base_sequence=0, **ids)
    append(partition, base_sequence=1, **ids)
    later, again = Waiter(), Waiter()
    partition.committed_waiters.add(2, later)
    info = append(partition, base_sequence=0, **ids)
    assert (info.base_offset, info.next_offset) == (0, 1)
    partition.committed_waiters.add(info.next_offset, again)
    acknowledge(partition, 1, 2, 3)
    assert (again.outcome, later.outcome) == ("committed", None)


def test_proposed_member_does_not_count_for_the_minimum() -> None:
    partition = replica(state(1, isr=(1,)), min_isr=2)
    acknowledge(partition, 0, 2)
    proposal = partition.next_proposal(0, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2)
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(partition)
    partition.handle_isr_accepted(proposal, (1, 2), 1)
    append(partition)


def test_follower_refuses_a_batch_that_overlaps_its_end() -> None:
    partition = replica(state(1), 2)
    data = bytearray(bytes(batch(b"a")) + bytes(batch(b"b")))
    assign_offset(data, 0, 0, 0)
    assign_offset(data, len(data) // 2, 1, 0)
    partition.append_as_follower(memoryview(data), 0)
    overlapping = bytearray(encode_batch([RecordInput(None, b"", (), 1)] * 3, base_offset=1))
    with pytest.raises(KafkaError) as refused:
        partition.append_as_follower(memoryview(overlapping), 0)
    assert (refused.value.code, partition.log.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)


def test_losing_leadership_refuses_waiting_requests() -> None:
    partition = replica(state(1))
    append(partition)
    waiter = Waiter()
    partition.committed_waiters.add(1, waiter)
    assert partition.apply(state(2, epoch=1, version=1), 0)
    assert waiter.outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        partition.require_leader()


def test_too_few_in_sync_refuses_all_acks_only() -> None:
    partition = replica(state(1, isr=(1,)), min_isr=2)
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(partition)
    assert append(partition, all_acks=False).base_offset == 0


def test_failed_write_to_disk_is_not_swallowed() -> None:
    disk = MemoryDisk()
    partition = replica(state(1), disk=disk)
    disk.inject("append", errno.ENOSPC, path_part=".log")
    with pytest.raises(OSError):
        append(partition)


@pytest.mark.parametrize("leader", [1, 2])
def test_log_with_a_later_leader_epoch_than_the_controllers_is_damaged(
    leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[tuple[object, ...]] = []
    monkeypatch.setattr(Events, "storage_failed", lambda _, *reported: failed.append(reported))
    partition = replica(state(2, epoch=9))
    partition.append_as_follower(memoryview(stored(0, 9)), 0)
    again = Partition("t", Uuid(b"i" * 16), 0, 1, partition.log, Events())
    again.apply(state(leader, epoch=3), 0)
    assert again.leader_id is None
    ((reported, error),) = failed
    assert reported is again and isinstance(error, CorruptLogError)


def test_batch_that_is_committed_by_too_few_is_not_acknowledged() -> None:
    partition = replica(state(1), min_isr=2)
    waiter = Waiter()
    partition.committed_waiters.add(append(partition).next_offset, waiter)
    partition.apply(state(1, version=1, isr=(1,)), 0)
    assert (partition.high_watermark, waiter.outcome) == (1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def test_retry_of_a_batch_with_old_timestamps_is_a_duplicate_after_a_check_for_expired_producers() -> None:
    partition = replica(state(1, isr=(1,)))
    ids: ProducerFields = {"producer_id": 4, "producer_epoch": 0}
    append(partition, base_sequence=0, **ids)  # its record is of the year 1970
    day_ms = 86_400_000
    partition.producers.expire(30_000 * day_ms, day_ms)
    assert append(partition, base_sequence=0, **ids).base_offset == 0
    append(partition, base_sequence=1, **ids)
    partition.producers.expire(30_001 * day_ms, day_ms)
    partition.producers.expire(30_002 * day_ms, day_ms)
    assert partition.producers.entry(4) is not None


def test_new_leader_knows_where_epochs_end_that_it_has_no_records_of() -> None:
    partition = replica(state(2, epoch=1, version=1))
    partition.append_as_follower(memoryview(stored(0, 1)), 0)
    partition.apply(state(1, epoch=7, version=2), 0)
    end = partition.check_follower(2, 3, 5)  # led in epoch 5 without any follower knowing
    assert end is not None and (end.epoch, end.end_offset) == (1, 1)


def test_leader_counts_no_offset_beyond_its_own_end() -> None:
    partition = replica(state(1))
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        acknowledge(partition, 1, 2)
    acknowledge(partition, 0, 3)
    append(partition)
    acknowledge(partition, 1, 3)
    assert partition.high_watermark == 0


def test_leader_elected_again_counts_only_fetches_after_its_election() -> None:
    partition = replica(state(1))
    for _ in range(3):
        append(partition)
    acknowledge(partition, 3, 2)
    acknowledge(partition, 1, 3)
    partition.apply(state(2, epoch=1, version=1), 0)
    partition.apply(state(1, epoch=2, version=2), 0)
    acknowledge(partition, 3, 3)
    assert partition.high_watermark == 1  # 2 may have been truncated in the meantime
    acknowledge(partition, 3, 2)
    assert partition.high_watermark == 3
