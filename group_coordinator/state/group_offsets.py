"""The committed offsets of one group by topic. Most groups read one topic: those need no map.

A persistent map takes 140 bytes even for one entry, which is most of what a small group would cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pykraft.group_coordinator.state.offset_table import TopicOffsets
from pykraft.metadata_log.persistent import Map, MapMutation


class OneTopic(Mapping[str, TopicOffsets]):
    """The offsets of a group in one topic; immutable, with the methods of a persistent map."""

    __slots__ = ("_partitions", "_topic")

    def __init__(self, topic: str, partitions: TopicOffsets) -> None:
        self._topic = topic
        self._partitions = partitions

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        yield self._topic

    def __getitem__(self, topic: str) -> TopicOffsets:
        if topic != self._topic:
            raise KeyError(topic)
        return self._partitions

    def set(self, topic: str, partitions: TopicOffsets) -> GroupOffsets:
        if topic == self._topic:
            return OneTopic(topic, partitions)
        return Map({self._topic: self._partitions, topic: partitions})

    def delete(self, topic: str) -> GroupOffsets:
        self[topic]  # it must be there, as in a map
        return NO_OFFSETS

    def mutate(self) -> MapMutation[str, TopicOffsets]:
        return Map({self._topic: self._partitions}).mutate()

    def __repr__(self) -> str:
        return f"OneTopic({self._topic!r}, {self._partitions!r})"


GroupOffsets: TypeAlias = Map[str, TopicOffsets] | OneTopic

NO_OFFSETS: Map[str, TopicOffsets] = Map()


def pack(offsets: GroupOffsets) -> GroupOffsets:
    """The same in the least memory."""
    if len(offsets) != 1 or isinstance(offsets, OneTopic):
        return offsets
    ((topic, partitions),) = offsets.items()
    return OneTopic(topic, partitions)
