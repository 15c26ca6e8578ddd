"""Every transition of the member state machine (KIP-848), by name."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pykraft.group_coordinator.consumer.current_assignment import reconcile
from pykraft.group_coordinator.state.member import ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import Partitions
from pykraft.kafka_protocol.ids import Uuid

T = Uuid(b"t" * 16)
NONE: Partitions = frozenset()
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def parts(*indexes: int) -> Partitions:
    return frozenset((T, index) for index in indexes)


def member(
    state: MemberState, epoch: int, assigned: Partitions, pending: Partitions = NONE
) -> ConsumerMember:
    return ConsumerMember(
        "m",
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
        assignment_epochs=dict.fromkeys(assigned | pending, epoch - 2),
    )


def step(
    old: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None = None,
    held: Partitions = NONE,
    unsubscribed: bool = False,
    changed: bool = False,
) -> ConsumerMember:
    return reconcile(
        old,
        target_epoch=target_epoch,
        target=target,
        subscribed=set() if unsubscribed else {T},
        subscription_changed=changed,
        owned=owned,
        held_by_others=held,
    )


def test_stable_at_the_target_epoch_does_not_change() -> None:
    old = member(STABLE, 10, parts(1, 2))
    assert step(old, 10, parts(1, 2)) is old


def test_stable_to_stable_with_a_new_epoch_and_the_same_partitions() -> None:
    new = step(member(STABLE, 10, parts(1, 2)), 11, parts(1, 2))
    assert (new.state, new.epoch, new.previous_epoch, new.assigned) == (STABLE, 11, 10, parts(1, 2))


def test_stable_to_stable_with_new_free_partitions() -> None:
    new = step(member(STABLE, 10, parts(1)), 11, parts(1, 2))
    assert (new.state, new.epoch, new.assigned) == (STABLE, 11, parts(1, 2))


def test_stable_to_unrevoked_keeps_the_epoch_and_reduces_the_assignment() -> None:
    new = step(member(STABLE, 10, parts(1, 2)), 11, parts(2, 3))
    assert (new.state, new.epoch, new.assigned) == (UNREVOKED, 10, parts(2))
    assert new.pending_revocation == parts(1)


def test_stable_skips_revocation_of_what_the_member_does_not_own() -> None:
    new = step(member(STABLE, 10, parts(1, 2)), 11, parts(2, 3), owned=parts())
    assert (new.state, new.epoch, new.assigned) == (STABLE, 11, parts(2, 3))


def test_stable_to_unreleased_assigns_only_what_is_free() -> None:
    new = step(member(STABLE, 10, parts(1)), 11, parts(1, 2, 3), held=parts(3))
    assert (new.state, new.epoch, new.assigned) == (UNRELEASED, 11, parts(1, 2))


def test_unrevoked_stays_while_the_member_reports_nothing() -> None:
    old = member(UNREVOKED, 10, parts(2), parts(1))
    assert step(old, 11, parts(2)) is old


def test_unrevoked_stays_while_the_member_owns_a_revoked_partition() -> None:
    old = member(UNREVOKED, 10, parts(2), parts(1, 4))
    assert step(old, 11, parts(2), owned=parts(2, 4)) is old


def test_unrevoked_to_stable_once_revoked() -> None:
    new = step(member(UNREVOKED, 10, parts(2), parts(1)), 11, parts(2, 3), owned=parts(2))
    assert (new.state, new.epoch, new.assigned) == (STABLE, 11, parts(2, 3))
    assert new.pending_revocation == parts()


def test_unrevoked_to_unrevoked_when_the_target_moved_on_stays_at_its_epoch() -> None:
    new = step(member(UNREVOKED, 10, parts(2, 3), parts(1)), 12, parts(3), owned=parts(2, 3))
    assert (new.state, new.epoch, new.previous_epoch) == (UNREVOKED, 10, 10)
    assert (new.assigned, new.pending_revocation) == (parts(3), parts(2))


def test_unrevoked_to_unreleased_once_revoked_and_others_still_hold() -> None:
    new = step(member(UNREVOKED, 10, parts(2), parts(1)), 11, parts(2, 3), owned=parts(2), held=parts(3))
    assert (new.state, new.epoch, new.assigned) == (UNRELEASED, 11, parts(2))


def test_partition_that_is_being_revoked_is_assigned_again_only_after_its_revocation() -> None:
    old = member(UNREVOKED, 10, parts(2), parts(1))
    assert step(old, 12, parts(1, 2)) is old
    new = step(old, 12, parts(1, 2), owned=parts(2))
    assert (new.state, new.epoch, new.assigned) == (STABLE, 12, parts(1, 2))


def test_unreleased_to_stable_once_everything_is_free() -> None:
    new = step(member(UNRELEASED, 11, parts(2)), 11, parts(2, 3))
    assert (new.state, new.epoch, new.assigned) == (STABLE, 11, parts(2, 3))


def test_unreleased_gets_what_became_free_and_keeps_waiting() -> None:
    new = step(member(UNRELEASED, 11, parts(2)), 11, parts(2, 3, 4), held=parts(4))
    assert (new.state, new.epoch, new.previous_epoch, new.assigned) == (UNRELEASED, 11, 11, parts(2, 3))


def test_unreleased_stays_while_nothing_is_free() -> None:
    old = replace(member(UNRELEASED, 11, parts(2)), previous_epoch=11)
    assert step(old, 11, parts(2, 3), held=parts(3)) == old


def test_unreleased_to_unrevoked_when_the_target_shrinks() -> None:
    new = step(member(UNRELEASED, 11, parts(2, 3)), 12, parts(3), held=parts(9))
    assert (new.state, new.epoch, new.pending_revocation) == (UNREVOKED, 11, parts(2))


def test_unknown_state_of_a_newer_coordinator_starts_over_when_nothing_is_owned() -> None:
    new = step(member(MemberState.UNKNOWN, 10, parts()), 11, parts(1), owned=parts())
    assert (new.state, new.epoch, new.assigned) == (STABLE, 11, parts(1))


sets = st.frozensets(st.integers(0, 5)).map(lambda indexes: parts(*indexes))


@given(assigned=sets, target=sets, others=sets, owned=st.none() | sets, ahead=st.integers(1, 3))
def test_one_step_never_assigns_what_others_hold_nor_drops_what_the_member_may_own(
    assigned: Partitions, target: Partitions, others: Partitions, owned: Partitions | None, ahead: int
) -> None:
    old = member(STABLE, 10, assigned - others)
    new = step(old, 10 + ahead, target, owned, others)
    assert not (new.held & others)
    assert 10 <= new.epoch <= 10 + ahead
    still_owned = old.assigned if owned is None else old.assigned & owned
    assert still_owned <= new.held
    if new.state is not UNREVOKED:
        assert new.epoch == 10 + ahead
        assert new.assigned <= target
    if new.state is STABLE:
        assert new.assigned == target
