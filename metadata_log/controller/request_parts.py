"""Splits large requests of clients into parts, each decided and appended on its own.

Every topic (or resource) of these requests succeeds or fails alone; only the results are joined into one
response. A part makes one batch of bounded length; other work may run between parts. A single topic cannot be
split: a client may create, or add, ``max_records_per_request`` partitions at once (Kafka's 10,000;
POLICY_VIOLATION beyond), which holds the event loop for about a tenth of a second.

An election for all partitions becomes one for those that need it: all are only looked at, in one turn.

Topics that are named twice are kept in one part, which refuses them as usual. The exception is a topic to be
deleted that is named once by name and once by id, with hundreds of others in between: it is deleted. Requests
that only validate are not split: a later part would need the result of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any, Final

from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykraft.kafka_protocol.messages.create_partitions import CreatePartitionsRequest
from pykraft.kafka_protocol.messages.create_topics import CreateTopicsRequest
from pykraft.kafka_protocol.messages.delete_topics import DeleteTopicsRequest
from pykraft.kafka_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykraft.kafka_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykraft.kafka_protocol.schema import Message
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import MetadataImage

PART_RECORDS: Final = 500
"""A part makes at most this many records, unless a single topic makes more."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a request is split: its lists, the list of results, the identity of an item, and its cost."""

    lists: tuple[str, ...]
    answers: str
    name_of: Callable[[Any], Hashable]
    records_of: Callable[[Any], int]


def _records_of_new_topic(topic: Any) -> int:
    return max(1, int(topic.num_partitions), len(topic.assignments)) + len(topic.configs) + 1


_CUTS: Final[dict[type[Message], _Cut]] = {
    AlterPartitionReassignmentsRequest: _Cut(
        ("topics",), "responses", lambda topic: topic.name, lambda topic: len(topic.partitions)
    ),
    CreateTopicsRequest: _Cut(("topics",), "topics", lambda topic: topic.name, _records_of_new_topic),
    CreatePartitionsRequest: _Cut(
        ("topics",), "results", lambda topic: topic.name, lambda topic: max(1, int(topic.count))
    ),
    DeleteTopicsRequest: _Cut(
        ("topics", "topic_names"),
        "responses",
        lambda topic: topic if isinstance(topic, str) else (topic.name or topic.topic_id),
        lambda topic: 1,
    ),
    IncrementalAlterConfigsRequest: _Cut(
        ("resources",),
        "responses",
        lambda resource: (resource.resource_type, resource.resource_name),
        lambda resource: len(resource.configs),
    ),
    ElectLeadersRequest: _Cut(
        ("topic_partitions",),
        "replica_election_results",
        lambda topic: topic.topic,
        lambda topic: len(topic.partitions),
    ),
}


def cut_request(request: Message, image: MetadataImage) -> list[Message]:
    """The parts, in order; the request itself if it is short enough, or cannot be split."""
    cut = _CUTS.get(type(request))
    if cut is None or getattr(request, "validate_only", False):
        return [request]
    whole = request
    if isinstance(request, ElectLeadersRequest) and request.topic_partitions is None:
        whole = copy(request)
        whole.topic_partitions = _in_need_of_election(request, image)
    groups: dict[Hashable, list[tuple[str, Any]]] = {}
    for attribute in cut.lists:
        for item in getattr(whole, attribute):
            groups.setdefault(cut.name_of(item), []).append((attribute, item))
    packs: list[list[tuple[str, Any]]] = [[]]
    room = PART_RECORDS
    for group in groups.values():
        records = sum(cut.records_of(item) for _, item in group)
        if records > room and packs[-1]:
            packs.append([])
            room = PART_RECORDS
        packs[-1] += group
        room -= records
    if len(packs) == 1:
        return [whole]
    return [_part(request, cut, pack) for pack in packs]


def _in_need_of_election(request: ElectLeadersRequest, image: MetadataImage) -> list[TopicPartitions]:
    needy = []
    for name in sorted(image.topic_ids):
        partitions = image.topics_by_id[image.topic_ids[name]].partitions
        if request.election_type == ElectionType.PREFERRED:
            indexes = [index for index, it in enumerate(partitions) if it.leader != it.replicas[0]]
        else:
            indexes = [index for index, it in enumerate(partitions) if not it.has_leader]
        if indexes:
            needy.append(TopicPartitions(topic=name, partitions=indexes))
    return needy


def _part(request: Message, cut: _Cut, pack: Sequence[tuple[str, Any]]) -> Message:
    part = copy(request)
    for attribute in cut.lists:
        setattr(part, attribute, [item for kind, item in pack if kind == attribute])
    return part


def join_answers(request: Message, answers: Sequence[Any]) -> Any:
    """The response to the whole request, joined from those to its parts."""
    whole = answers[0]
    if len(answers) > 1:
        attribute = _CUTS[type(request)].answers
        setattr(whole, attribute, [item for answer in answers for item in getattr(answer, attribute)])
        if isinstance(request, ElectLeadersRequest) and request.topic_partitions is None:
            # Partitions that got their leader between two parts were not named by the client.
            for topic in whole.replica_election_results:
                topic.partition_result = [
                    item
                    for item in topic.partition_result
                    if item.error_code != ErrorCode.ELECTION_NOT_NEEDED
                ]
    return whole
