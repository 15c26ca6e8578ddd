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

Partitions of topics that the member does not subscribe to count as absent from the target. If it has just
changed its subscription and has no newer target yet, they are cut from its assignment at once. Each partition
keeps the assignment epoch at which the member got it, also while it is being revoked (KIP-1251).

This file never looks at the group: the caller tells which partitions are free.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from pykraft.group_coordinator.state.member import ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import NO_PARTITIONS, Partitions, TopicPartition
from pykraft.kafka_protocol.ids import Uuid


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    subscribed: Set[Uuid],
    subscription_changed: bool,
    owned: Set[TopicPartition] | None,
    held_by_others: Set[TopicPartition],
) -> ConsumerMember:
    """The member after one step.

    ``subscribed``: the ids of its topics, which it has just changed if ``subscription_changed``. ``owned``:
    the partitions that the member reports to own; None if it reported nothing (then it may own everything
    that it was ever assigned). ``held_by_others``: the partitions that other members may still be using.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return _without_unsubscribed(member, subscribed, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if may_own(owned, member.pending_revocation):
            return _without_unsubscribed(member, subscribed, owned) if subscription_changed else member
        case MemberState.UNKNOWN:
            # Written by a coordinator that knew more states than this one. A member that owns nothing can
            # start over; any other would have to revoke unknown partitions, so it must rejoin.
            assert owned is not None and not owned, (
                "a member in an unknown state must be fenced by the caller"
            )
    wanted = target
    if any(topic_id not in subscribed for topic_id, _ in target):
        wanted = frozenset(one for one in target if one[0] in subscribed)
    return _advance(member, target_epoch, wanted, owned, held_by_others)


def may_own(owned: Set[TopicPartition] | None, partitions: Partitions) -> bool:
    """Whether the member may still be using some of ``partitions``; silence means that it is."""
    return owned is None or not owned.isdisjoint(partitions)


def _advance(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Set[TopicPartition] | None,
    held_by_others: Set[TopicPartition],
) -> ConsumerMember:
    kept = member.assigned & target
    pending_revocation = member.assigned - target
    pending_assignment = target - kept
    free = pending_assignment - held_by_others

    if pending_revocation and may_own(owned, pending_revocation):
        state = MemberState.UNREVOKED_PARTITIONS
        return _moved(member, member.epoch, state, kept, pending_revocation, target_epoch)
    state = MemberState.STABLE if free == pending_assignment else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, target_epoch, state, kept | free, NO_PARTITIONS, target_epoch)


def _without_unsubscribed(
    member: ConsumerMember, subscribed: Set[Uuid], owned: Set[TopicPartition] | None
) -> ConsumerMember:
    """The member without partitions of other topics than ``subscribed``; it may have to revoke them first."""
    kept = frozenset(one for one in member.assigned if one[0] in subscribed)
    if kept == member.assigned:
        return member
    pending_revocation = member.pending_revocation | (member.assigned - kept)
    if may_own(owned, pending_revocation):
        state = MemberState.UNREVOKED_PARTITIONS
        return _moved(member, member.epoch, state, kept, pending_revocation, member.epoch)
    return _moved(member, member.epoch, member.state, kept, member.pending_revocation, member.epoch)


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    pending_revocation: Partitions,
    assignment_epoch: int,
) -> ConsumerMember:
    """``assignment_epoch`` is that of the partitions that the member did not hold before."""
    held = assigned | pending_revocation
    known = member.assignment_epochs
    stays = member.assigned | pending_revocation
    return replace(
        member,
        epoch=epoch,
        # If the answer to this step is lost, the member still sends the epoch that it has now.
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
        assignment_epochs={one: known[one] if one in stays else assignment_epoch for one in held},
    )
