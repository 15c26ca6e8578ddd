"""The assignors of a classic group's leader: ``range`` and ``cooperative-sticky`` (KIP-54, KIP-429). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pykraft.kafka_client.group.config import COOPERATIVE_STICKY
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.lazy_dataclass import dataclass

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription, and the partitions it claims with the generation of the claim."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


def assign(
    assignor: str, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """The partitions of each member. Topics without a count get no owner."""
    if assignor == COOPERATIVE_STICKY:
        return _cooperative_sticky(partition_counts, members)
    return _range(partition_counts, members)


def _range(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
    """Each topic separately: the members in order get runs of partitions, the first ones one more each."""
    assignment: Assignment = {member_id: [] for member_id in members}
    for topic, count in sorted(counts.items()):
        takers = sorted(
            (member_id for member_id, member in members.items() if topic in member.topics),
            key=lambda member_id: _range_order(member_id, members[member_id].instance_id),
        )
        first = 0
        for place, member_id in enumerate(takers):
            share = count // len(takers) + (place < count % len(takers))
            assignment[member_id] += [TopicPartition(topic, index) for index in range(first, first + share)]
            first += share
    return assignment


def _range_order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    """Static members first, by their permanent name."""
    return (instance_id is None, member_id if instance_id is None else instance_id)


def _cooperative_sticky(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
    """As even as the subscriptions allow, with few moves.

    A partition that moves stays without an owner until its current owner has revoked it; another rebalance
    then assigns it.
    """
    owners = _owners(members)
    kept = {
        partition: owner
        for partition, owner in owners.items()
        if partition.topic in members[owner].topics and partition.partition < counts.get(partition.topic, 0)
    }
    assignment: Assignment = {member_id: [] for member_id in sorted(members)}
    for partition, owner in kept.items():
        assignment[owner].append(partition)
    takers = {
        topic: [member_id for member_id in assignment if topic in members[member_id].topics]
        for topic in counts
    }
    for topic, count in sorted(counts.items()):
        for index in range(count):
            partition = TopicPartition(topic, index)
            if partition not in kept and takers[topic]:
                assignment[min(takers[topic], key=lambda taker: len(assignment[taker]))].append(partition)
    _balance(assignment, takers)
    for member_id, partitions in assignment.items():
        assignment[member_id] = sorted(p for p in partitions if owners.get(p, member_id) == member_id)
    return assignment


def _owners(members: Mapping[str, MemberSubscription]) -> dict[TopicPartition, str]:
    """The owner of each partition, still wanted or not. The newest generation wins; a tie means no owner."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member_id, member in members.items():
        for partition in member.owned:
            claims[partition].append((member.generation, member_id))
    owners = {}
    for partition, claimed in sorted(claims.items()):
        claimed.sort(reverse=True)
        if len(claimed) == 1 or claimed[0][0] != claimed[1][0]:
            owners[partition] = claimed[0][1]
    return owners


def _balance(assignment: Assignment, takers: Mapping[str, list[str]]) -> None:
    """Move partitions from the fullest member that can give one to members with two fewer, until none can."""
    while True:
        for giver in sorted(assignment, key=lambda member_id: -len(assignment[member_id])):
            move = _best_move(giver, assignment, takers)
            if move is not None:
                partition, taker = move
                assignment[giver].remove(partition)
                assignment[taker].append(partition)
                break
        else:
            return


def _best_move(
    giver: str, assignment: Assignment, takers: Mapping[str, list[str]]
) -> tuple[TopicPartition, str] | None:
    """The partition taken last moves first, to the subscriber of its topic that has the fewest."""
    least = {topic: min(who, key=lambda one: len(assignment[one])) for topic, who in takers.items() if who}
    for partition in reversed(assignment[giver]):
        taker = least[partition.topic]
        if len(assignment[taker]) + 1 < len(assignment[giver]):
            return partition, taker
    return None
