"""Parts of a client's request: one row for each request with a list.

A row says which of the request's lists are split, what succeeds or fails alone (a unit), which units are the
same, and what one costs. The splitting itself is in :mod:`.request_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.messages import configs as legacy
from pykraft.kafka_protocol.messages.configs import IncrementalAlterConfigsRequest
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from pykraft.lazy_dataclass import dataclass

Unit = tuple[str, Any, Any]
"""What succeeds or fails alone: the list that it is in, the item of the list, and the element of the item
(None: the whole item).
"""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a request is split: its ``lists`` of items, the list of results (``answers``), the identity of an
    item, and the cost of a unit in some ten microseconds, whether it is refused or not.

    ``inner``: the list of an item whose elements are the units, and the list of their results.
    ``answered_once``: one result stands for all items with the same identity.
    """

    lists: tuple[str, ...]
    answers: str
    name_of: Callable[[Any], Hashable]
    cost_of: Callable[[Any], int] = lambda unit: 6
    inner: tuple[str, str] | None = None
    element_of: Callable[[Any], Hashable] = lambda element: element
    answered_once: bool = False

    def iter_units(self, request: Message) -> Iterator[Unit]:
        """The units of a request, in its order. An item without elements is a unit, too."""
        for attribute in self.lists:
            for item in getattr(request, attribute):
                elements = () if self.inner is None else getattr(item, self.inner[0])
                for element in elements or (None,):
                    yield attribute, item, element

    def identity(self, unit: Unit) -> Hashable:
        """The same for units that stand for the same thing."""
        _, item, element = unit
        name = self.name_of(item)
        return name if element is None else (name, self.element_of(element))

    def cost(self, unit: Unit) -> int:
        """The cost of a unit."""
        _, item, element = unit
        return self.cost_of(item if element is None else element)


def _cost_of_new_topic(topic: Any) -> int:
    partitions: int = max(1, topic.num_partitions, len(topic.assignments))
    return 6 + partitions + len(topic.configs)


def _cost_of_resource(resource: Any) -> int:
    # A name that does not exist is refused with a suggestion, which is what takes long.
    return 20 + len(resource.configs)


CUTS: Final[dict[type[Message], Cut]] = {
    AlterPartitionReassignmentsRequest: Cut(
        ("topics",),
        "responses",
        lambda topic: topic.name,
        inner=("partitions", "partitions"),
        element_of=lambda partition: partition.partition_index,
    ),
    ListPartitionReassignmentsRequest: Cut(
        ("topics",),
        "topics",
        lambda topic: topic.name,
        lambda index: 1,
        inner=("partition_indexes", "partitions"),
    ),
    ElectLeadersRequest: Cut(
        ("topic_partitions",),
        "replica_election_results",
        lambda topic: topic.topic,
        inner=("partitions", "partition_result"),
    ),
    CreateTopicsRequest: Cut(
        ("topics",), "topics", lambda topic: topic.name, _cost_of_new_topic, answered_once=True
    ),
    CreatePartitionsRequest: Cut(
        ("topics",),
        "results",
        lambda topic: topic.name,
        lambda topic: 3 + max(0, topic.count, len(topic.assignments or ())),
        answered_once=True,
    ),
    DeleteTopicsRequest: Cut(
        ("topics", "topic_names"),
        "responses",
        lambda topic: topic if isinstance(topic, str) else (topic.name or topic.topic_id),
        answered_once=True,
    ),
    IncrementalAlterConfigsRequest: Cut(
        ("resources",),
        "responses",
        lambda resource: (resource.resource_type, resource.resource_name),
        _cost_of_resource,
    ),
    legacy.AlterConfigsRequest: Cut(
        ("resources",),
        "responses",
        lambda resource: (resource.resource_type, resource.resource_name),
        _cost_of_resource,
    ),
}
