"""The range assignor: contiguous runs of partitions, the same run in every co-partitioned topic.

Topics with the same subscribers and the same number of partitions are divided alike, so that partition 3 of
both is read by one member and their keys can be joined. Each run is assigned to the member that had most of
it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.group_coordinator.assignors.interface import MemberSpec
from pykraft.group_coordinator.records import Partitions, TopicPartition
from pykraft.kafka_protocol.ids import Uuid


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    # Static members first, by their instance ids: their order must not depend on generated member ids.
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    alike: dict[tuple[int, tuple[str, ...]], list[Uuid]] = {}
    for topic_id in sorted({topic_id for spec in members.values() for topic_id in spec.subscribed}):
        subscribers = tuple(m for m in order if topic_id in members[m].subscribed)
        alike.setdefault((partition_counts.get(topic_id, 0), subscribers), []).append(topic_id)
    for (partition_count, subscribers), topic_ids in sorted(alike.items(), key=lambda item: item[1]):
        runs = _cut(partition_count, len(subscribers))
        for member_id, run in _match(runs, subscribers, members, topic_ids).items():
            assigned[member_id].update((topic_id, index) for topic_id in topic_ids for index in run)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _cut(partition_count: int, parts: int) -> list[range]:
    """Contiguous runs that differ in length by at most one, the longer ones first."""
    length, extra = divmod(partition_count, parts)
    runs, start = [], 0
    for index in range(parts):
        end = start + length + (1 if index < extra else 0)
        runs.append(range(start, end))
        start = end
    return runs


def _match(
    runs: list[range],
    subscribers: tuple[str, ...],
    members: Mapping[str, MemberSpec],
    topic_ids: list[Uuid],
) -> dict[str, range]:
    overlaps = []
    for position, member_id in enumerate(subscribers):
        current = members[member_id].current
        for run_index, run in enumerate(runs):
            shared = sum((topic_id, index) in current for topic_id in topic_ids for index in run)
            if shared:
                overlaps.append((-shared, run_index, position))
    matched: dict[str, range] = {}
    taken: set[int] = set()
    for _, run_index, position in sorted(overlaps):
        if run_index not in taken and subscribers[position] not in matched:
            matched[subscribers[position]] = runs[run_index]
            taken.add(run_index)
    rest = (run for run_index, run in enumerate(runs) if run_index not in taken)
    for member_id in subscribers:
        if member_id not in matched:
            matched[member_id] = next(rest)
    return matched
