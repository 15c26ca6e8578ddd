"""What a leader commits with eligible leader replicas (KIP-966), and the cost of unclean elections."""

import pytest

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import refused
from tests.broker.partitions import Events, Waiter
from tests.narrowing import present


def replica(
    registration: PartitionRegistration, node_id: int = 1, *, min_isr: int = 2, strict: bool = True
) -> Partition:
    log = Log.open(MemoryDisk(), "t-0", LogConfig(segment_bytes=2000), now_ms=0)
    partition = Partition("t", Uuid(b"i" * 16), 0, node_id, log, Events())
    partition.set_min_isr(min_isr, strict=strict)
    partition.apply(registration, 0)
    return partition


def state(
    leader: int, epoch: int, version: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()
) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch, version, elr=elr)


def append(partition: Partition, *, all_acks: bool = False) -> int:
    data = memoryview(bytearray(encode_batch([RecordInput(None, b"v", (), 1)])))
    return partition.append_as_leader(data, read_header(data), 1, all_acks=all_acks).next_offset


def test_below_the_minimum_nothing_is_committed_until_enough_are_in_sync_again() -> None:
    leader = replica(state(1, 0, 0, (1,)))
    waiter = Waiter()
    end = append(leader)
    leader.committed_waiters.add(end, waiter)
    assert (leader.high_watermark, waiter.outcome) == (0, None)
    leader.handle_follower_fetch(2, end, 7, 0, 0)
    assert leader.high_watermark == 0
    leader.apply(state(1, 0, 1, (1, 2)), 0)
    assert (leader.high_watermark, waiter.outcome) == (end, "committed")


def test_without_the_feature_a_single_replica_commits() -> None:
    leader = replica(state(1, 0, 0, (1,)), strict=False)
    end = append(leader)
    assert leader.high_watermark == end


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    leader = replica(PartitionRegistration((1, 2), (1, 2), 1, 0, 0), min_isr=3)
    end = append(leader)
    leader.handle_follower_fetch(2, end, 7, 0, 0)
    assert leader.high_watermark == end


@pytest.mark.parametrize("strict", [False, True])
def test_acks_all_requires_no_more_than_the_number_of_replicas(strict: bool) -> None:
    leader = replica(PartitionRegistration((1, 2), (1, 2), 1, 0, 0), min_isr=3, strict=strict)
    waiter = Waiter()
    end = append(leader, all_acks=True)
    leader.committed_waiters.add(end, waiter)
    leader.handle_follower_fetch(2, end, 7, 0, 0)
    assert waiter.outcome == "committed"
    leader.apply(PartitionRegistration((1, 2), (1,), 1, 0, 1), 0)
    with pytest.raises(KafkaError, match="1 in-sync replicas, 2 required") as refusal:
        append(leader, all_acks=True)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("strict", [False, True])
def test_a_partition_that_is_being_moved_has_more_replicas_and_requires_more(strict: bool) -> None:
    leader = replica(PartitionRegistration((1,), (1,), 1, 0, 0), min_isr=2, strict=strict)
    append(leader, all_acks=True)
    leader.apply(PartitionRegistration((1, 2), (1,), 1, 0, 1, adding=(2,)), 0)
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(leader, all_acks=True)
    leader.apply(PartitionRegistration((2, 1), (1, 2), 1, 0, 2), 0)
    append(leader, all_acks=True)


def test_nothing_is_committed_past_an_eligible_replica_whatever_minimum_the_leader_assumes() -> None:
    # The controller knows of a larger minimum; this leader does not yet.
    leader = replica(state(1, 0, 0, (1, 2)), min_isr=1)
    leader.apply(state(1, 0, 1, (1,), elr=(2,)), 0)
    append(leader)
    assert leader.high_watermark == 0
    leader.apply(state(1, 0, 2, (1,)), 0)
    assert leader.high_watermark == 1, "the minimum is smaller: the ELR is empty"


def test_the_answer_to_a_proposal_names_eligible_replicas() -> None:
    leader = replica(state(1, 0, 0, (1, 2)), min_isr=1)
    end = append(leader)
    proposal = leader.next_proposal(1000, 500, lambda replica, epoch: True)
    assert proposal is not None and proposal.new_isr == (1,)
    leader.handle_isr_accepted(proposal, (1,), 1, (2,))
    assert leader.high_watermark == 0
    leader.handle_follower_fetch(2, end, 7, 1000, 0)
    again = present(leader.next_proposal(1001, 500, lambda replica, epoch: True))
    leader.handle_isr_accepted(again, (1, 2), 2, ())
    assert leader.high_watermark == end


def test_a_smaller_minimum_commits_what_waited() -> None:
    leader = replica(state(1, 0, 0, (1,)))
    end = append(leader)
    assert leader.high_watermark == 0
    leader.set_min_isr(1, strict=True)
    assert leader.high_watermark == end


def test_after_an_unclean_election_the_old_leader_truncates_its_log_to_the_new_ones() -> None:
    old, new = (replica(state(1, 0, 0, (1,)), node_id, strict=False) for node_id in (1, 2))
    for _ in range(5):
        append(old)
    assert old.high_watermark == 5
    unclean = state(2, 1, 1, (2,))
    new.apply(unclean, 0)
    assert append(new) == 1
    old.apply(unclean, 0)
    end = present(new.check_follower(1, old.log.log_end_offset, old.log.latest_epoch))
    old.truncate_to_divergence(end.epoch, end.end_offset)
    assert (old.log.log_end_offset, old.high_watermark) == (0, 0)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        new.handle_follower_fetch(1, 5, 7, 0, 0)
