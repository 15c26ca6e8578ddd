"""The ISR of one replica that leads: which followers join and leave, and how a proposal in flight counts."""

from collections.abc import Callable
from functools import partial

from pykraft.broker.replicas.partition.isr import IsrProposal
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.metadata_log.image import PartitionRegistration
from tests.broker.partitions import acknowledge, always, append, replica, state, stored
from tests.narrowing import present


def proposed(
    partition: Partition,
    new_isr: tuple[int, ...],
    *,
    now_ms: int = 0,
    eligible: Callable[[int, int], bool] = always,
) -> IsrProposal:
    proposal = present(partition.next_proposal(now_ms, 500, eligible))
    assert proposal.new_isr == new_isr
    return proposal


def test_shrink_counts_only_once_it_is_committed() -> None:
    partition = replica(state(1))
    append(partition)
    acknowledge(partition, 1, 2, now_ms=1000)
    proposal = proposed(partition, (1, 2), now_ms=1000)
    assert partition.high_watermark == 0
    assert partition.next_proposal(2000, 500, always) is None  # one at a time
    partition.handle_isr_accepted(proposal, (1, 2), 1)
    assert partition.high_watermark == 1


def test_silent_follower_does_not_join_although_the_high_watermark_waits_for_it() -> None:
    """The next check would remove it again."""
    partition = replica(state(1, isr=(1,)), min_isr=2)
    partition.set_min_isr(2, strict=True)
    acknowledge(partition, 0, 3, now_ms=0)
    append(partition, all_acks=False)
    assert partition.high_watermark == 0
    assert partition.next_proposal(501, 500, always) is None
    proposed(partition, (1, 3), now_ms=500)


def test_older_image_does_not_undo_a_newer_answer() -> None:
    partition = replica(state(1))
    acknowledge(partition, 0, 2, now_ms=1000)
    append(partition)
    proposal = present(partition.next_proposal(1000, 500, always))
    partition.handle_isr_accepted(proposal, (1, 2), 5)
    assert not partition.apply(state(1, version=4), 0)
    assert partition.isr.committed == (1, 2)


def test_answer_older_than_the_log_changes_nothing() -> None:
    partition = replica(state(1, isr=(1, 2)))
    acknowledge(partition, 0, 2, 3)
    proposal = present(partition.next_proposal(0, 500, always))
    partition.apply(state(1, version=2, isr=(1, 3)), 0)  # added, and 2 fenced since
    partition.handle_isr_accepted(proposal, (1, 2, 3), 1)
    assert (partition.isr.committed, partition.isr.partition_epoch) == ((1, 3), 2)


def test_late_answer_to_an_earlier_proposal_does_not_complete_the_one_in_flight() -> None:
    partition = replica(state(1, isr=(1, 2)))
    acknowledge(partition, 0, 2, 3)
    first = proposed(partition, (1, 2, 3))
    partition.apply(state(1, version=1, isr=(1, 2, 3)), 0)  # the log overtakes the answer
    acknowledge(partition, 0, 4)
    proposed(partition, (1, 2, 3, 4))
    partition.handle_isr_accepted(first, (1, 2, 3), 1)
    append(partition)
    acknowledge(partition, 1, 2, 3)
    assert partition.high_watermark == 0  # 4 may be in the ISR by now and has nothing
    acknowledge(partition, 1, 4)
    assert partition.high_watermark == 1


def lose_an_addition(partition: Partition) -> None:
    """A proposal to add 3 gets no answer; then 3 dies."""
    acknowledge(partition, 0, 2, 3)
    proposal = proposed(partition, (1, 2, 3))
    partition.handle_isr_refused(proposal, 0, outcome_known=False)
    append(partition)
    acknowledge(partition, 1, 2)


def all_but_three(replica: int, epoch: int) -> bool:
    return replica != 3


def test_unanswered_addition_counts_until_the_partition_epoch_increases() -> None:
    partition = replica(state(1, isr=(1, 2)))
    lose_an_addition(partition)
    again = present(partition.next_proposal(0, 500, all_but_three))
    partition.handle_isr_accepted(again, (1, 2), 0)  # as it is: a late copy may still be taken
    assert partition.high_watermark == 0
    partition.apply(state(1, version=1, isr=(1, 2)), 0)
    assert partition.high_watermark == 1


def test_unanswered_addition_of_a_dead_replica_is_resolved_by_a_change_that_increases_the_epoch() -> None:
    partition = replica(state(1, isr=(1, 2)))
    lose_an_addition(partition)
    again = present(partition.next_proposal(0, 500, all_but_three))
    assert set(again.new_isr) == {1, 2} and again.new_isr != (1, 2)  # the controller has to write it down
    partition.handle_isr_accepted(again, again.new_isr, 1)
    assert partition.high_watermark == 1
    assert partition.next_proposal(0, 500, all_but_three) is None


def is_only(added: int, replica: int, epoch: int) -> bool:
    return replica == added


def test_additions_of_several_attempts_without_an_answer_all_count() -> None:
    partition = replica(state(1, isr=(1,)))
    acknowledge(partition, 0, 2, 3)
    for added in (2, 3):  # the first is fenced when the second is asked for
        proposal = proposed(partition, (1, added), eligible=partial(is_only, added))
        partition.handle_isr_unanswered(proposal)
    append(partition, all_acks=False)
    acknowledge(partition, 1, 3)
    assert partition.high_watermark == 0, "either of them may have been added"
    acknowledge(partition, 1, 2)
    assert partition.high_watermark == 1


def elected_behind_its_epoch_start() -> Partition:
    """A new leader whose high watermark lags: records 0 and 1 may be committed though it knows of none."""
    partition = replica(state(2))
    for offset in range(2):
        partition.append_as_follower(memoryview(stored(offset, 0)), 0)
    partition.apply(state(1, epoch=1, version=1, isr=(1, 2)), 0)
    return partition


def test_replica_behind_the_leaders_epoch_start_does_not_join() -> None:
    partition = elected_behind_its_epoch_start()
    assert (partition.high_watermark, partition.leader_epoch_start) == (0, 2)
    acknowledge(partition, 1, 3)
    assert partition.next_proposal(0, 500, always) is None
    acknowledge(partition, 2, 3)
    proposal = proposed(partition, (1, 2, 3))
    assert proposal.broker_epochs == {2: -1, 3: 7}


def test_replica_that_has_lost_its_tail_does_not_join_behind_the_leaders_epoch_start() -> None:
    """It was at the end of the log just before, and so does not lag yet."""
    partition = elected_behind_its_epoch_start()
    acknowledge(partition, 2, 3)
    acknowledge(partition, 1, 3, epoch=8)
    assert (partition.high_watermark, partition.leader_epoch_start) == (0, 2)
    assert partition.next_proposal(0, 500, always) is None
    acknowledge(partition, 2, 3, epoch=8)
    proposed(partition, (1, 2, 3))


def test_follower_of_an_incarnation_that_is_not_registered_does_not_join() -> None:
    partition = replica(state(1, isr=(1, 2)))
    acknowledge(partition, 0, 2, 3)
    assert partition.next_proposal(0, 500, lambda replica, epoch: (replica, epoch) != (3, 7)) is None
    assert partition.next_proposal(0, 500, always) is not None


def test_replica_that_a_move_adds_is_followed_and_joins_without_a_new_leader_epoch() -> None:
    partition = replica(PartitionRegistration((1, 2), (1, 2), 1, 0, 0))
    append(partition)
    partition.apply(PartitionRegistration((1, 2, 4), (1, 2), 1, 0, 1, adding=(4,)), 0)
    assert partition.check_follower(4, 0, -1) is None
    acknowledge(partition, 1, 2, 4)
    proposed(partition, (1, 2, 4))


def test_follower_that_once_reached_the_end_has_the_full_lag_time_from_then_on() -> None:
    partition = replica(state(1, isr=(1,)))
    acknowledge(partition, 0, 2, now_ms=1000)
    proposal = proposed(partition, (1, 2), now_ms=1000)
    partition.handle_isr_accepted(proposal, (1, 2), 1)
    append(partition)
    assert partition.next_proposal(1499, 500, always) is None
    proposed(partition, (1,), now_ms=1501)


def test_follower_of_a_busy_log_that_is_always_one_fetch_behind_stays_in_sync() -> None:
    partition = replica(state(1, isr=(1, 2)))
    for number in range(40):
        append(partition)
        acknowledge(partition, number, 2, now_ms=100 * number)
        assert partition.next_proposal(100 * number, 500, always) is None
    late = partition.next_proposal(100 * 40 + 500, 500, always)
    assert late is not None and late.new_isr == (1,)
