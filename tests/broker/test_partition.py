"""Rules of one replica, called directly over logs in memory."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from pykraft.broker.logs.producer_state import rebuild
from pykraft.broker.replicas.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, find_offset
from pykraft.broker.replicas.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log import Log
from pykraft.log_store.memory import MemoryDisk
from pykraft.metadata_log.image import PartitionRegistration


class Events:
    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...

    def producers_lost(self, partition: Partition) -> None:
        log = partition.log
        partition.producers.adopt(rebuild(log.iter_headers(0), log_start_offset=log.log_start_offset))


class Waiter:
    def __init__(self) -> None:
        self.outcome: object = None

    def offset_committed(self) -> None:
        self.outcome = "committed"

    def offset_refused(self, error_code: int) -> None:
        self.outcome = ErrorCode(error_code)


def make(node_id: int = 1, *, min_isr: int = 1, disk: MemoryDisk | None = None, **options: Any) -> Partition:
    config = LogConfig(segment_bytes=2000, min_insync_replicas=min_isr)
    log = Log.open(disk or MemoryDisk(), "t-0", config, now_ms=0)
    return Partition("t", b"i" * 16, 0, node_id, log, Events(), **options)  # type: ignore[arg-type]


def state(leader: int, epoch: int = 0, version: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> Any:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch, version)


def batch(value: bytes = b"v", **fields: Any) -> memoryview:
    return memoryview(bytearray(encode_batch([RecordInput(None, value, (), 1000)], **fields)))


def append(partition: Partition, value: bytes = b"v", *, all_acks: bool = True, **fields: Any) -> Any:
    data = batch(value, **fields)
    return partition.append_as_leader(data, read_header(data), 5000, all_acks=all_acks)


def acknowledge(partition: Partition, offset: int, *replicas: int, epoch: int = 7, now_ms: int = 0) -> None:
    for replica in replicas:
        partition.handle_follower_fetch(replica, offset, epoch, now_ms)


def always(replica: int, epoch: int) -> bool:
    return True


def test_high_watermark_is_the_smallest_end_over_the_isr() -> None:
    partition = make()
    partition.apply(state(1), 0)
    for _ in range(3):
        append(partition)
    waiter = Waiter()
    partition.wait_for_commit(3, waiter)
    acknowledge(partition, 3, 2)
    assert partition.high_watermark == 0
    acknowledge(partition, 2, 3)
    assert (partition.high_watermark, waiter.outcome) == (2, None)
    acknowledge(partition, 3, 3)
    assert (partition.high_watermark, waiter.outcome) == (3, "committed")


def test_shrink_counts_only_once_it_is_committed() -> None:
    partition = make()
    partition.apply(state(1), 0)
    append(partition)
    acknowledge(partition, 1, 2, now_ms=1000)
    proposal = partition.next_proposal(1000, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2)
    assert partition.high_watermark == 0
    assert partition.next_proposal(2000, 500, always) is None  # one at a time
    partition.handle_isr_accepted(proposal, (1, 2), 1)
    assert partition.high_watermark == 1


def test_older_image_does_not_undo_an_answer_that_overtook_it() -> None:
    partition = make()
    partition.apply(state(1), 0)
    acknowledge(partition, 0, 2, now_ms=1000)
    append(partition)
    proposal = partition.next_proposal(1000, 500, always)
    assert proposal is not None
    partition.handle_isr_accepted(proposal, (1, 2), 5)
    assert not partition.apply(state(1, version=4), 0)
    assert partition.isr.committed == (1, 2)


def test_replica_behind_the_leaders_epoch_start_does_not_join() -> None:
    # The new leader's high watermark lags: records 0 and 1 may be committed though it knows of none.
    partition = make()
    partition.apply(state(2), 0)
    for offset in range(2):
        data = batch()
        assign_offset(data, 0, offset, 0)
        partition.append_as_follower(data, 0)
    partition.apply(state(1, epoch=1, version=1, isr=(1, 2)), 0)
    assert (partition.high_watermark, partition.leader_epoch_start) == (0, 2)
    acknowledge(partition, 1, 3)
    assert partition.next_proposal(0, 500, always) is None
    acknowledge(partition, 2, 3)
    proposal = partition.next_proposal(0, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2, 3)
    assert proposal.broker_epochs == {2: -1, 3: 7}


def test_late_fetch_of_a_previous_incarnation_acknowledges_nothing() -> None:
    partition = make()
    partition.apply(state(1), 0)
    append(partition)
    acknowledge(partition, 0, 2, 3, epoch=8)
    with pytest.raises(KafkaError) as refused:
        acknowledge(partition, 1, 2, epoch=7)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    acknowledge(partition, 1, 3, epoch=8)
    assert partition.high_watermark == 0


def test_diverging_follower_is_told_where_and_acknowledges_nothing() -> None:
    partition = make()
    partition.apply(state(1, epoch=2), 0)
    append(partition)
    end = partition.check_follower(2, 5, 1)
    assert end is not None and (end.epoch, end.end_offset) == (1, 0)
    end = partition.check_follower(2, 5, 2)
    assert end is not None and (end.epoch, end.end_offset) == (2, 1)
    assert partition.check_follower(2, 1, 2) is None
    with pytest.raises(KafkaError):
        partition.check_follower(9, 0, -1)


def test_new_leader_does_not_show_an_end_that_may_move_back() -> None:
    partition = make()
    partition.apply(state(2), 0)
    data = batch()
    assign_offset(data, 0, 0, 0)
    partition.append_as_follower(data, 0)
    partition.apply(state(1, epoch=1, version=1), 0)
    with pytest.raises(KafkaError) as refused:
        find_offset(partition, LATEST, is_replica=False)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert find_offset(partition, EARLIEST, is_replica=False).offset == 0
    acknowledge(partition, 1, 2, 3)
    assert find_offset(partition, LATEST, is_replica=False).offset == 1
    assert find_offset(partition, MAX_TIMESTAMP, is_replica=False).offset == 0
    assert find_offset(partition, 1000, is_replica=False).offset == 0
    assert find_offset(partition, 1001, is_replica=False).offset == -1


def test_uncommitted_records_are_found_by_no_consumer() -> None:
    partition = make()
    partition.apply(state(1), 0)
    append(partition)
    assert find_offset(partition, 0, is_replica=False).offset == -1
    assert partition.read_committed(0, 1000, at_least_one=True) is None
    assert partition.read_replica(0, 1000, at_least_one=True) is not None


def test_duplicate_of_an_uncommitted_batch_waits_like_the_original() -> None:
    partition = make()
    partition.apply(state(1), 0)
    ids = {"producer_id": 4, "producer_epoch": 0}
    append(partition, base_sequence=0, **ids)
    append(partition, base_sequence=1, **ids)
    later, again = Waiter(), Waiter()
    partition.wait_for_commit(2, later)
    info = append(partition, base_sequence=0, **ids)
    assert (info.base_offset, info.next_offset, info.is_duplicate) == (0, 1, True)
    partition.wait_for_commit(info.next_offset, again)
    acknowledge(partition, 1, 2, 3)
    assert (again.outcome, later.outcome) == ("committed", None)


def test_losing_leadership_refuses_who_waits() -> None:
    partition = make()
    partition.apply(state(1), 0)
    append(partition)
    waiter = Waiter()
    partition.wait_for_commit(1, waiter)
    assert partition.apply(state(2, epoch=1, version=1), 0)
    assert waiter.outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        partition.require_leader()


def test_truncation_forgets_the_producers_of_the_tail_only() -> None:
    partition = make()
    partition.apply(state(1), 0)
    for sequence in range(12):
        append(partition, producer_id=4, producer_epoch=0, base_sequence=sequence)
    append(partition, producer_id=9, producer_epoch=0, base_sequence=0)
    partition.apply(state(2, epoch=1, version=1), 0)
    partition.truncate_to(3)  # all that was remembered of 4, and more
    known = partition.producers.entry(4)
    assert known is not None and [b.first_sequence for b in known.batches] == [0, 1, 2]
    assert partition.producers.entry(9) is None
    partition.apply(state(1, epoch=2, version=2), 0)
    with pytest.raises(KafkaError) as refused:
        append(partition, producer_id=4, producer_epoch=0, base_sequence=12)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=2).base_offset == 2
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=3).base_offset == 3


def test_follower_takes_no_gap_that_compaction_cannot_have_made() -> None:
    partition = make()
    partition.apply(state(2), 0)
    data = batch(b"rotten offset")
    assign_offset(data, 0, 1 << 20, 0)
    with pytest.raises(KafkaError) as refused:
        partition.append_as_follower(memoryview(data), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert partition.log.log_end_offset == 0
    partition.log.config = replace(partition.log.config, cleanup_policy=frozenset({"compact"}))
    partition.append_as_follower(memoryview(data), 0)
    assert partition.log.log_end_offset == (1 << 20) + 1


def test_follower_keeps_nothing_of_a_damaged_response_and_skips_what_it_has() -> None:
    partition = make()
    partition.apply(state(2), 0)
    batches = []
    for offset in range(3):
        data = batch(b"%d" % offset)
        assign_offset(data, 0, offset, 0)
        batches.append(bytes(data))
    damaged = bytearray(b"".join(batches))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        partition.append_as_follower(memoryview(damaged), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert partition.log.log_end_offset == 0
    partition.append_as_follower(memoryview(batches[0] + batches[1][:-1]), 0)
    assert partition.log.log_end_offset == 1
    partition.append_as_follower(memoryview(b"".join(batches)), 0)
    assert partition.log.log_end_offset == 3
    partition.follow(2, 0)
    assert partition.high_watermark == 2
    partition.follow(1, 0)
    assert partition.high_watermark == 2


def test_follower_that_led_without_writing_finds_back(caplog: pytest.LogCaptureFixture) -> None:
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


def test_high_watermark_below_log_start_is_lifted() -> None:
    partition = make()
    partition.apply(state(2), 0)
    partition.restart_at(50)
    assert (partition.high_watermark, partition.log.log_end_offset) == (50, 50)
    data = batch()
    assign_offset(data, 0, 50, 0)
    partition.append_as_follower(data, 0)
    partition.follow(51, 51)
    assert (partition.high_watermark, partition.log.log_start_offset) == (51, 51)


def test_too_few_in_sync_refuses_all_acks_only() -> None:
    partition = make(min_isr=2)
    partition.apply(state(1, isr=(1,)), 0)
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition, all_acks=False).base_offset == 0


def test_write_that_fails_on_disk_is_not_swallowed() -> None:
    disk = MemoryDisk()
    partition = make(disk=disk)
    partition.apply(state(1), 0)
    disk.inject("append", errno.ENOSPC, path_part=".log")
    with pytest.raises(OSError):
        append(partition)


def test_additions_of_several_attempts_without_an_answer_all_count() -> None:
    partition = make()
    partition.apply(state(1, isr=(1,)), 0)
    acknowledge(partition, 0, 2, 3)
    for added in (2, 3):  # the first is fenced when the second is asked for
        proposal = partition.next_proposal(0, 500, lambda replica, epoch, added=added: replica == added)
        assert proposal is not None and proposal.new_isr == (1, added)
        partition.handle_isr_unanswered(proposal)
    append(partition, all_acks=False)
    acknowledge(partition, 1, 3)
    assert partition.high_watermark == 0, "either of them may have been taken in"
    acknowledge(partition, 1, 2)
    assert partition.high_watermark == 1


def test_follower_that_asked_for_the_end_once_has_the_full_time_from_then_on() -> None:
    partition = make()
    partition.apply(state(1, isr=(1,)), 0)
    acknowledge(partition, 0, 2, now_ms=1000)
    proposal = partition.next_proposal(1000, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2)
    partition.handle_isr_accepted(proposal, (1, 2), 1)
    append(partition)
    assert partition.next_proposal(1499, 500, always) is None
    late = partition.next_proposal(1501, 500, always)
    assert late is not None and late.new_isr == (1,)


def test_follower_of_a_busy_log_that_is_always_one_fetch_behind_stays_in_sync() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    for number in range(40):
        append(partition)
        acknowledge(partition, number, 2, now_ms=100 * number)
        assert partition.next_proposal(100 * number, 500, always) is None
    late = partition.next_proposal(100 * 40 + 500, 500, always)
    assert late is not None and late.new_isr == (1,)


def test_replica_that_a_move_adds_is_followed_and_joins_without_a_new_leader_epoch() -> None:
    partition = make()
    partition.apply(PartitionRegistration((1, 2), (1, 2), 1, 0, 0), 0)
    append(partition)
    partition.apply(PartitionRegistration((1, 2, 4), (1, 2), 1, 0, 1, adding=(4,)), 0)
    assert partition.check_follower(4, 0, -1) is None
    acknowledge(partition, 1, 2, 4)
    proposal = partition.next_proposal(0, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2, 4)


def test_batch_that_is_committed_by_too_few_is_not_acknowledged() -> None:
    partition = make(min_isr=2)
    partition.apply(state(1), 0)
    waiter = Waiter()
    partition.wait_for_commit(append(partition).next_offset, waiter)
    partition.apply(state(1, version=1, isr=(1,)), 0)
    assert (partition.high_watermark, waiter.outcome) == (1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
