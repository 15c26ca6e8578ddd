"""The uniform assignor: all members get nearly the same number of partitions, and few partitions move.

If all subscriptions are the same, the counts differ by at most one. Otherwise the least loaded subscriber
gets each partition, and then partitions move from more to less loaded members until no single move helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pykraft.group_coordinator.consumer.assignors.interface import MemberSpec
from pykraft.group_coordinator.state.records import Partitions, TopicPartition
from pykraft.kafka_protocol.ids import Uuid


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    if not members:
        return {}
    subscriptions = {spec.subscribed for spec in members.values()}
    if len(subscriptions) == 1:
        assigned = _assign_alike(members, partition_counts, next(iter(subscriptions)))
    else:
        assigned = _assign_unlike(members, partition_counts)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _assign_alike(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int], subscribed: frozenset[Uuid]
) -> dict[str, set[TopicPartition]]:
    everything = _all_partitions(subscribed, partition_counts)
    quota, extra = divmod(len(everything), len(members))
    assigned: dict[str, set[TopicPartition]] = {}
    limits: dict[str, int] = {}
    taken: set[TopicPartition] = set()
    given_up: list[TopicPartition] = []
    for member_id in sorted(members):
        own = sorted((members[member_id].current & everything) - taken)
        limits[member_id] = quota
        if len(own) > quota and extra > 0:
            limits[member_id] += 1
            extra -= 1
        assigned[member_id] = set(own[: limits[member_id]])
        given_up += own[limits[member_id] :]
        taken.update(own)
    # As Kafka does: what nobody had first, and members in order, each filled before the next.
    free = iter([*sorted(everything - taken), *given_up])
    for member_id in assigned:
        if extra > 0 and limits[member_id] == quota:
            limits[member_id] += 1
            extra -= 1
        assigned[member_id].update(islice(free, limits[member_id] - len(assigned[member_id])))
    return assigned


def _assign_unlike(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, set[TopicPartition]]:
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].subscribed:
            subscribers.setdefault(topic_id, []).append(member_id)
    unassigned = _all_partitions(frozenset(subscribers), partition_counts)
    assigned: dict[str, set[TopicPartition]] = {}
    for member_id in sorted(members):
        spec = members[member_id]
        kept = {p for p in spec.current & unassigned if p[0] in spec.subscribed}
        assigned[member_id] = kept
        unassigned -= kept
    # Topics with few subscribers first: the partitions of all others can still be balanced later.
    for partition in sorted(unassigned, key=lambda p: (len(subscribers[p[0]]), p)):
        assigned[_least_loaded(subscribers[partition[0]], assigned)].add(partition)
    _balance(assigned, subscribers)
    return assigned


def _balance(assigned: dict[str, set[TopicPartition]], subscribers: Mapping[Uuid, list[str]]) -> None:
    """Move partitions while that narrows a difference; ends because the sum of squared loads falls."""
    moved = True
    while moved:
        moved = False
        for member_id in sorted(assigned, key=lambda m: (-len(assigned[m]), m)):
            for partition in sorted(assigned[member_id]):
                other = _least_loaded(subscribers[partition[0]], assigned)
                if len(assigned[member_id]) - len(assigned[other]) >= 2:
                    assigned[member_id].remove(partition)
                    assigned[other].add(partition)
                    moved = True


def _least_loaded(candidates: list[str], assigned: Mapping[str, set[TopicPartition]]) -> str:
    return min(candidates, key=lambda member_id: (len(assigned[member_id]), member_id))


def _all_partitions(topic_ids: frozenset[Uuid], partition_counts: Mapping[Uuid, int]) -> set[TopicPartition]:
    return {(topic_id, index) for topic_id in topic_ids for index in range(partition_counts.get(topic_id, 0))}
