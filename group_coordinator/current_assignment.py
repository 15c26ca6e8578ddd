"""One step of a member towards its target assignment: the state machine of KIP-848, as a pure function.

Three sets decide everything:

* kept               = assigned ∩ target
* pending revocation = assigned - target      (the member must revoke these first)
* pending assignment = target - kept          (assigned only once no other member holds them)

A member that must revoke partitions stays at its epoch (UNREVOKED) until it reports that it no longer owns
them; only then does its epoch move. A member that has nothing to revoke moves to the target epoch at once,
with the partitions that are free (UNRELEASED while other members still hold some, else STABLE). So at any
time a partition is held by at most one member, and a member at the target epoch holds no partition that the
target assigns to another.

This file never looks at the group: the caller tells which partitions are free.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.group_coordinator.member import ConsumerMember, MemberState
from pykraft.group_coordinator.records import NO_PARTITIONS, Partitions


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    held_by_others: Partitions,
) -> ConsumerMember:
    """The member after one step.

    ``owned``: the partitions that the member reports to own; None if it reported nothing (then it may own
    everything that it was ever assigned). ``held_by_others``: the partitions that other members may still be
    using.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _advance(member, member.epoch, target_epoch, target, owned, held_by_others)
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & member.pending_revocation:
                return member
            return _advance(member, member.epoch + 1, target_epoch, target, owned, held_by_others)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, member.epoch, target_epoch, target, owned, held_by_others)
        case MemberState.UNKNOWN:
            # Written by a coordinator that knew more states than this one. A member that owns nothing can
            # start over; any other would have to revoke unknown partitions, so it must rejoin.
            assert owned is not None and not owned, (
                "a member in an unknown state must be fenced by the caller"
            )
            return _advance(member, member.epoch, target_epoch, target, owned, held_by_others)


def _advance(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    held_by_others: Partitions,
) -> ConsumerMember:
    kept = member.assigned & target
    pending_revocation = member.assigned - target
    pending_assignment = target - kept
    free = pending_assignment - held_by_others

    if pending_revocation and (owned is None or owned & pending_revocation):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending_revocation)
    state = MemberState.STABLE if free == pending_assignment else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, target_epoch, state, kept | free, NO_PARTITIONS)


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    pending_revocation: Partitions,
) -> ConsumerMember:
    # If the answer with the new epoch is lost, the member still sends the previous one.
    previous_epoch = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
