"""The range assignor: each topic is cut into contiguous runs, one for each subscriber, in order of members.

As in Kafka nothing is kept of the assignment before. In exchange partitions of equal number, of topics with
the same subscribers and the same number of partitions, have one reader, so that their keys can be joined.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.group_coordinator.consumer.assignors.interface import MemberSpec
from pykraft.group_coordinator.state.records import Partitions, TopicPartition
from pykraft.kafka_protocol.ids import Uuid


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    # Static members first, by their instance ids: their order must not depend on generated member ids.
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].subscribed:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for topic_id, readers in subscribers.items():
        length, extra = divmod(partition_counts.get(topic_id, 0), len(readers))
        start = 0
        for number, member_id in enumerate(readers):
            end = start + length + (number < extra)
            assigned[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}
