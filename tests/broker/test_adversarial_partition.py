"""One replica against answers that come twice, late or from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from pykraft.broker.logs.producer_state import rebuild
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


def make(node_id: int = 1, **options: Any) -> Partition:
    log = Log.open(MemoryDisk(), "t-0", LogConfig(segment_bytes=2000), now_ms=0)
    return Partition("t", b"i" * 16, 0, node_id, log, Events(), **options)  # type: ignore[arg-type]


def state(leader: int, epoch: int = 0, version: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> Any:
    return PartitionRegistration((1, 2, 3, 4), isr, leader, epoch, version)


def stored(offset: int, epoch: int, value: bytes = b"v", **fields: Any) -> bytes:
    data = bytearray(encode_batch([RecordInput(None, value, (), 1000)], **fields))
    assign_offset(data, 0, offset, epoch)
    return bytes(data)


def append(partition: Partition, value: bytes = b"v", **fields: Any) -> Any:
    data = memoryview(bytearray(encode_batch([RecordInput(None, value, (), 1000)], **fields)))
    return partition.append_as_leader(data, read_header(data), 5000, all_acks=True)


def acknowledge(partition: Partition, offset: int, *replicas: int, now_ms: int = 0) -> None:
    for replica in replicas:
        partition.handle_follower_fetch(replica, offset, 7, now_ms)


def always(replica: int, epoch: int) -> bool:
    return True


def test_late_answer_to_an_earlier_proposal_does_not_settle_the_one_in_flight() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    acknowledge(partition, 0, 2, 3)
    first = partition.next_proposal(0, 500, always)
    assert first is not None and first.new_isr == (1, 2, 3)
    partition.apply(state(1, version=1, isr=(1, 2, 3)), 0)  # the log overtakes the answer
    acknowledge(partition, 0, 4)
    second = partition.next_proposal(0, 500, always)
    assert second is not None and second.new_isr == (1, 2, 3, 4)
    partition.handle_isr_accepted(first, (1, 2, 3), 1)
    append(partition)
    acknowledge(partition, 1, 2, 3)
    assert partition.high_watermark == 0  # 4 may be in the ISR by now and has nothing
    acknowledge(partition, 1, 4)
    assert partition.high_watermark == 1


def lose_an_addition(partition: Partition) -> None:
    """A proposal to add 3 gets no answer; then 3 dies."""
    acknowledge(partition, 0, 2, 3)
    proposal = partition.next_proposal(0, 500, always)
    assert proposal is not None and proposal.new_isr == (1, 2, 3)
    partition.handle_isr_refused(proposal, 0, outcome_known=False)
    append(partition)
    acknowledge(partition, 1, 2)


def all_but_three(replica: int, epoch: int) -> bool:
    return replica != 3


def test_unanswered_addition_counts_until_the_partition_epoch_moves() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    lose_an_addition(partition)
    again = partition.next_proposal(0, 500, all_but_three)
    assert again is not None
    partition.handle_isr_accepted(again, (1, 2), 0)  # as it is: a late copy may still be taken
    assert partition.high_watermark == 0
    partition.apply(state(1, version=1, isr=(1, 2)), 0)
    assert partition.high_watermark == 1


def test_unanswered_addition_of_a_dead_replica_is_settled_by_a_change_that_moves_the_epoch() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    lose_an_addition(partition)
    again = partition.next_proposal(0, 500, all_but_three)
    assert again is not None
    assert set(again.new_isr) == {1, 2} and again.new_isr != (1, 2)  # the controller has to write it down
    partition.handle_isr_accepted(again, again.new_isr, 1)
    assert partition.high_watermark == 1
    assert partition.next_proposal(0, 500, all_but_three) is None


@pytest.mark.parametrize(("epoch", "kept"), [(1, 1), (2, 2), (3, 0)])
def test_follower_takes_only_what_its_leader_can_have_written_in_its_epoch(epoch: int, kept: int) -> None:
    # A leader that was deposed and truncated may send, from a slice queued before, its successor's bytes.
    partition = make(1)
    partition.apply(state(2, epoch=1, version=1), 0)
    partition.append_as_follower(memoryview(stored(0, 1)), 0)
    partition.apply(state(3, epoch=2, version=2), 0)
    data = memoryview(stored(1, epoch) + stored(2, 3))
    with pytest.raises(KafkaError) as refused:
        partition.append_as_follower(data, 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (partition.log.log_end_offset, partition.log.latest_epoch) == (1, 1)
    if kept:
        partition.append_as_follower(data[: len(data) // 2], 0)
        assert partition.log.log_end_offset == 2


def test_follower_refuses_an_epoch_that_goes_back() -> None:
    partition = make(1)
    partition.apply(state(2, epoch=3, version=1), 0)
    partition.append_as_follower(memoryview(stored(0, 1) + stored(1, 3)), 0)
    with pytest.raises(KafkaError):
        partition.append_as_follower(memoryview(stored(2, 2)), 0)
    assert [(e.epoch, e.start_offset) for e in partition.log.epoch_cache.entries] == [(1, 0), (3, 1)]


def test_starting_over_behind_deleted_records_forgets_producers() -> None:
    partition = make(1)
    partition.apply(state(2), 0)
    partition.append_as_follower(
        memoryview(stored(0, 0, producer_id=4, producer_epoch=0, base_sequence=0)), 0
    )
    partition.restart_at(50)
    partition.apply(state(1, epoch=1, version=1), 0)
    # What 4 and 5 wrote between 1 and 50 is gone here; what they write next is none the less in order.
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=31).base_offset == 50
    assert append(partition, producer_id=5, producer_epoch=0, base_sequence=7).base_offset == 51


def test_retry_of_a_batch_with_old_timestamps_is_a_duplicate_after_the_producers_were_looked_through() -> (
    None
):
    partition = make()
    partition.apply(state(1, isr=(1,)), 0)
    ids = {"producer_id": 4, "producer_epoch": 0}
    append(partition, base_sequence=0, **ids)  # its record is of the year 1970
    day_ms = 86_400_000
    partition.producers.expire(30_000 * day_ms, day_ms)
    assert append(partition, base_sequence=0, **ids).is_duplicate
    append(partition, base_sequence=1, **ids)
    partition.producers.expire(30_001 * day_ms, day_ms)
    partition.producers.expire(30_002 * day_ms, day_ms)
    assert partition.producers.entry(4) is not None


def test_new_leader_knows_where_epochs_end_that_it_never_saw() -> None:
    partition = make(1)
    partition.apply(state(2, epoch=1, version=1), 0)
    partition.append_as_follower(memoryview(stored(0, 1)), 0)
    partition.apply(state(1, epoch=7, version=2), 0)
    end = partition.check_follower(2, 3, 5)  # led in epoch 5, and nobody else heard of it
    assert end is not None and (end.epoch, end.end_offset) == (1, 1)


def test_follower_of_an_incarnation_that_is_not_registered_does_not_join() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    acknowledge(partition, 0, 2, 3)
    assert partition.next_proposal(0, 500, lambda replica, epoch: (replica, epoch) != (3, 7)) is None
    assert partition.next_proposal(0, 500, always) is not None


def test_image_of_an_older_leader_epoch_changes_nothing() -> None:
    partition = make()
    partition.apply(state(1, epoch=3, version=5), 0)
    assert not partition.apply(state(2, epoch=2, version=4), 0)
    assert partition.is_leader and partition.leader_epoch == 3


def test_answer_older_than_the_log_changes_nothing() -> None:
    partition = make()
    partition.apply(state(1, isr=(1, 2)), 0)
    acknowledge(partition, 0, 2, 3)
    proposal = partition.next_proposal(0, 500, always)
    assert proposal is not None
    partition.apply(state(1, version=2, isr=(1, 3)), 0)  # added, and 2 fenced since
    partition.handle_isr_accepted(proposal, (1, 2, 3), 1)
    assert (partition.isr.committed, partition.isr.partition_epoch) == ((1, 3), 2)


def test_leader_counts_no_offset_beyond_its_own_end() -> None:
    partition = make()
    partition.apply(state(1), 0)
    with pytest.raises(KafkaError) as refused:
        acknowledge(partition, 1, 2)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    acknowledge(partition, 0, 3)
    append(partition)
    acknowledge(partition, 1, 3)
    assert partition.high_watermark == 0


def test_leader_elected_again_counts_only_what_followers_ask_for_from_now_on() -> None:
    partition = make()
    partition.apply(state(1), 0)
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


def test_state_rebuilt_from_a_log_without_its_beginning_takes_unknown_producers_as_they_come() -> None:
    log = Log.open(MemoryDisk(), "t-0", LogConfig(), now_ms=0, log_start_offset=5)
    partition = Partition("t", b"i" * 16, 0, 1, log, Events())  # type: ignore[arg-type]
    partition.apply(state(1), 0)
    assert append(partition, producer_id=4, producer_epoch=0, base_sequence=9).base_offset == 5
