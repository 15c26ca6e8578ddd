"""The names of a workload on a cluster that others use, too: all have a prefix, and all are remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pykraft.kafka_client.metadata import TopicPartition

T = TypeVar("T")
Sort = Literal["topic", "group"]


@dataclass(frozen=True, slots=True)
class Names:
    """``topics`` and ``groups``: what has been asked for, with the prefix.

    ``noted`` is told each name before that exists.
    """

    prefix: str
    noted: Callable[[Sort, str], None] = lambda sort, name: None
    topics: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        """A topic as the cluster names it."""
        return self.prefix + name

    def there(self, place: TopicPartition) -> TopicPartition:
        """A partition as the cluster names it."""
        return TopicPartition(self.prefix + place.topic, place.partition)

    def here(self, place: TopicPartition) -> TopicPartition:
        """A partition as the workload names it."""
        return TopicPartition(place.topic.removeprefix(self.prefix), place.partition)

    def all_there(self, values: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        return {self.there(place): value for place, value in values.items()}

    def all_here(self, values: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        return {self.here(place): value for place, value in values.items()}

    def new_topic(self, name: str) -> str:
        """The same, of a topic that will exist now."""
        return self._new("topic", self.topics, name)

    def new_group(self, name: str) -> str:
        """A group as the cluster names it, which will exist now."""
        return self._new("group", self.groups, name)

    def _new(self, sort: Sort, known: dict[str, None], name: str) -> str:
        whole = self.prefix + name
        if whole not in known:
            self.noted(sort, whole)
            known[whole] = None
        return whole
