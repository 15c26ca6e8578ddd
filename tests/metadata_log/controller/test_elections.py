"""Which replica leads, by the builder alone: partitions before and after."""

from collections.abc import Collection
from itertools import combinations, product

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.election_rules import BrokerView, ElectionRules
from pykraft.metadata_log.controller.elections import Assignment, Election, PartitionChangeBuilder
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.metadata_log.records import PartitionChangeRecord
from pykraft.metadata_log.replay import apply_change

ID = Uuid(bytes(16))
PLAIN_RULES = ElectionRules()
ELR_RULES = ElectionRules(min_isr=2, elr_enabled=True)


def partition(
    leader: int,
    isr: tuple[int, ...],
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
    last_known_elr: tuple[int, ...] = (),
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionRegistration:
    return PartitionRegistration(replicas, isr, leader, 4, 9, adding, removing, elr, last_known_elr)


def change(
    before: PartitionRegistration,
    active: set[int],
    *,
    rules: ElectionRules = PLAIN_RULES,
    tail_lost: Collection[int] = (),
    all_lost: Collection[int] = (),
    isr: tuple[int, ...] | None = None,
    assignment: Assignment | None = None,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    view = BrokerView(frozenset(active), frozenset(tail_lost), frozenset(all_lost))
    return PartitionChangeBuilder(view, rules).build(
        ID, 0, before, isr=isr, assignment=assignment, election=election
    )


def after(before: PartitionRegistration, active: set[int], **wish: object) -> PartitionRegistration:
    record = change(before, active, **wish)  # type: ignore[arg-type]
    assert record is not None
    return apply_change(before, record)


def test_a_partition_that_matches_the_rules_is_not_changed() -> None:
    assert change(partition(1, (1, 2, 3)), {1, 2, 3}) is None
    assert change(partition(1, (1, 2, 3)), {1, 2, 3}, rules=ELR_RULES) is None


def test_a_leaving_leader_is_followed_by_the_first_active_isr_member() -> None:
    new = after(partition(1, (1, 3, 2)), {2, 3})
    assert (new.leader, new.isr, new.leader_epoch, new.partition_epoch) == (2, (3, 2), 5, 10)


def test_a_leaving_follower_raises_no_leader_epoch() -> None:
    new = after(partition(1, (1, 2)), {1})
    assert (new.leader, new.isr, new.leader_epoch) == (1, (1,), 4)


def test_without_elr_the_last_isr_members_stay_without_a_leader() -> None:
    new = after(partition(1, (1, 2)), {3})
    assert (new.leader, new.isr, new.elr) == (-1, (1, 2), ())
    back = after(new, {2, 3})
    assert (back.leader, back.isr) == (2, (2,))


def test_without_elr_a_replica_that_lost_its_tail_stays_only_if_no_better_one_does() -> None:
    assert after(partition(-1, (1, 2)), {3}, tail_lost={1}).isr == (2,)
    assert change(partition(-1, (1,)), {3}, tail_lost={1}) is None


def test_a_replica_that_lost_its_directory_is_not_counted_on_even_as_the_last_one() -> None:
    new = after(partition(1, (1,)), {2, 3}, all_lost={1})
    assert (new.leader, new.isr) == (-1, ())
    assert change(new, {1, 2, 3}) is None, "not even when it is back, empty"
    forced = after(new, {1, 2, 3}, election=Election.UNCLEAN)
    assert (forced.leader, forced.isr) == (1, (1,))


def test_unclean_election_only_where_allowed() -> None:
    gone = partition(-1, (1,))
    assert change(gone, {2, 3}) is None
    new = after(gone, {2, 3}, rules=ElectionRules(unclean_allowed=True))
    assert (new.leader, new.isr) == (2, (2,))
    assert after(partition(1, (1,)), {3}, rules=ElectionRules(unclean_allowed=True)).leader == 3


def test_unclean_election_leaves_no_replica_eligible_that_may_differ_from_the_new_leader() -> None:
    rules = ElectionRules(min_isr=2, unclean_allowed=True, elr_enabled=True)
    new = after(partition(-1, (), elr=(2,)), {3}, rules=rules)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (3, (3,), (), ())


def test_unclean_election_prefers_replicas_that_are_not_just_being_added() -> None:
    moving = partition(-1, (1,), replicas=(4, 1, 2), adding=(4,), removing=(1, 2))
    assert after(moving, {2, 4}, election=Election.UNCLEAN).leader == 2


def test_replica_that_leaves_an_isr_below_the_minimum_joins_the_elr() -> None:
    new = after(partition(1, (1, 2)), {1}, rules=ELR_RULES)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (1, (1,), (2,), ())
    empty = after(new, set(), rules=ELR_RULES)
    assert (empty.leader, empty.isr, empty.elr, empty.last_known_elr) == (-1, (), (1, 2), (1,))
    back = after(empty, {2}, rules=ELR_RULES)
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (2, (2,), (1,), ())


def test_elr_is_empty_once_the_isr_is_large_enough_again() -> None:
    new = after(partition(1, (1,), elr=(2,)), {1, 3}, rules=ELR_RULES, isr=(1, 3))
    assert (new.isr, new.elr) == ((1, 3), ())


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    alone = partition(1, (1,), replicas=(1,))
    assert change(alone, {1}, rules=ELR_RULES) is None


def test_an_eligible_replica_does_not_lead_while_the_isr_has_a_member() -> None:
    new = after(partition(1, (1,), elr=(2,)), {2, 3}, rules=ELR_RULES)
    assert new.leader == 2
    below = partition(2, (2,), elr=(1,))
    assert change(below, {1, 2, 3}, rules=ELR_RULES) is None


def test_replica_that_stopped_without_flushing_is_no_longer_eligible() -> None:
    new = after(partition(-1, (), elr=(1, 2), last_known_elr=(1,)), {3}, rules=ELR_RULES, tail_lost={1})
    assert (new.leader, new.isr, new.elr) == (-1, (), (2,))
    only = after(partition(1, (1,)), {3}, rules=ELR_RULES, tail_lost={1})
    assert (only.leader, only.isr, only.elr, only.last_known_elr) == (-1, (), (), (1,))


def test_the_last_known_leader_leads_if_no_replica_is_eligible() -> None:
    lost = partition(-1, (), last_known_elr=(2,))
    assert change(lost, {1, 3}, rules=ELR_RULES) is None
    new = after(lost, {1, 2, 3}, rules=ELR_RULES)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (2, (2,), (), ())


def test_the_last_known_leader_waits_while_a_replica_is_eligible() -> None:
    assert change(partition(-1, (), elr=(1,), last_known_elr=(2,)), {2, 3}, rules=ELR_RULES) is None


def test_a_last_known_leader_without_its_directory_is_removed() -> None:
    lost = partition(-1, (), last_known_elr=(2,))
    new = after(lost, {1}, rules=ELR_RULES, all_lost={2})
    assert new.last_known_elr == ()
    assert change(new, {1, 2, 3}, rules=ELR_RULES) is None


def test_a_smaller_minimum_clears_the_elr_and_a_larger_one_keeps_it() -> None:
    below = partition(1, (1,), elr=(2,))
    assert after(below, {1, 2}, rules=ElectionRules(min_isr=1, elr_enabled=True)).elr == ()
    assert change(below, {1, 2}, rules=ElectionRules(min_isr=3, elr_enabled=True)) is None


def test_switching_elr_off_makes_the_elr_the_isr_of_a_leaderless_partition() -> None:
    new = after(partition(-1, (), elr=(1, 2), last_known_elr=(1,)), {3})
    assert (new.isr, new.elr, new.last_known_elr) == ((1, 2), (), ())
    assert after(partition(1, (1,), elr=(2,)), {1}).elr == ()


def test_preferred_election_takes_the_first_replica_or_changes_nothing() -> None:
    assert after(partition(2, (1, 2)), {1, 2}, election=Election.PREFERRED).leader == 1
    assert change(partition(2, (2,)), {1, 2}, election=Election.PREFERRED) is None


def test_reassignment_completes_when_all_added_replicas_are_in_the_isr() -> None:
    moving = after(partition(1, (1, 2, 3)), {1, 2, 3, 4}, assignment=Assignment((4, 2, 1, 3), (4,), (1, 3)))
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 1, 3), (4,), (1, 3))
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, (1, 2, 3), 4)
    done = after(moving, {1, 2, 3, 4}, isr=(1, 2, 3, 4))
    assert (done.replicas, done.adding, done.removing) == ((4, 2), (), ())
    assert (done.leader, done.isr, done.leader_epoch) == (4, (2, 4), 5)


def test_removal_alone_completes_at_once_and_raises_the_leader_epoch() -> None:
    new = after(partition(1, (1, 2, 3)), {1, 2, 3}, assignment=Assignment((1, 2, 3), (), (3,)))
    assert (new.replicas, new.isr, new.leader, new.leader_epoch) == ((1, 2), (1, 2), 1, 5)


def test_removal_waits_while_no_remaining_replica_is_in_the_isr() -> None:
    new = after(partition(3, (3,)), {1, 2, 3}, assignment=Assignment((1, 2, 3), (), (3,)))
    assert (new.replicas, new.isr, new.leader, new.removing) == ((1, 2, 3), (3,), 3, (3,))


def test_with_elr_a_removal_waits_rather_than_leave_too_few_in_sync() -> None:
    rules = ELR_RULES
    new = after(partition(1, (1, 2)), {1, 2}, rules=rules, assignment=Assignment((2, 3, 1), (), (1,)))
    assert (new.replicas, new.isr, new.removing) == ((2, 3, 1), (1, 2), (1,))
    done = after(new, {1, 2, 3}, rules=rules, isr=(1, 2, 3))
    assert (done.replicas, done.isr, done.leader) == ((2, 3), (2, 3), 2)
    below = partition(2, (2,), elr=(1,))
    dropped = after(below, {2}, rules=rules, assignment=Assignment((2, 1, 3), (), (3,)))
    assert (dropped.replicas, dropped.isr, dropped.elr) == ((2, 1), (2,), (1,)), (
        "no replica with every record is removed"
    )
    waiting = after(partition(2, (2, 3), removing=(3,)), {1, 2}, rules=rules)
    assert (waiting.isr, waiting.elr, waiting.removing) == ((2,), (3,), (3,)), (
        "3 has every record, although it is away"
    )


def _subsets(ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [subset for size in range(len(ids) + 1) for subset in combinations(ids, size)]


@pytest.mark.parametrize("elr_enabled", [False, True])
@pytest.mark.parametrize("unclean_allowed", [False, True])
def test_every_small_partition_needs_one_repair_only(elr_enabled: bool, unclean_allowed: bool) -> None:
    """All partitions of three replicas, under all views: the rules hold, and a second repair is a no-op."""
    rules = ElectionRules(2, unclean_allowed, elr_enabled)
    ids = (1, 2, 3)
    for isr, active, elr in product(_subsets(ids), _subsets(ids), _subsets(ids)):
        if set(isr) & set(elr):
            continue
        inactive = tuple(id for id in ids if id not in active)
        moves = (((), ()), ((), (3,)), ((2,), ()), ((2,), (3,)))
        for leader, tail_lost, (adding, removing) in product((-1, *isr), _subsets(inactive), moves):
            before = partition(leader, isr, elr=elr, adding=adding, removing=removing)
            record = change(before, set(active), rules=rules, tail_lost=set(tail_lost))
            new = before if record is None else apply_change(before, record)
            context = f"{before} active={active} lost={tail_lost} -> {new}"
            assert change(new, set(active), rules=rules, tail_lost=set(tail_lost)) is None, context
            assert new.leader == -1 or new.leader in new.isr, context
            assert new.leader == -1 or set(new.isr) <= set(active), context
            assert not set(new.elr) & set(new.isr), context
            assert len(new.isr) < 2 or not new.elr, context
            clean = unclean_allowed or set(new.isr) <= {*isr, *elr}
            assert clean, context
            if not unclean_allowed and new.leader == -1:
                assert not set(active) & ({*isr, *elr} if elr_enabled or not isr else {*isr}), context
            if elr_enabled and not unclean_allowed:
                lost = {*isr, *elr} - {*new.isr, *new.elr} - {*tail_lost}
                assert not lost or len(new.isr) >= min(2, len(new.replicas)), (
                    f"a replica with every record was removed: {context}"
                )
