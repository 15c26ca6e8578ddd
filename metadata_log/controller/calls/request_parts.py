"""Splits large requests of clients into parts: each is decided and appended on its own, in a turn of its own.

Every topic (or partition, or resource) of these requests succeeds or fails alone; only the results are joined
into one response (:mod:`.joined_answer`). A part makes one batch of bounded length, and is a bounded amount
of work even if it is refused or only validated; other work runs between two parts. A request that asks for
too much is refused as a whole before any part of it is decided
(:mod:`~pykraft.metadata_log.controller.request_limits`). The partitions of a topic to be created cannot be
split: up to ``max_records_per_request`` are decided in slices between which nothing else is.

A request for all partitions becomes one for those that it concerns, which are looked for a slice at a time.

What is named several times stays together, in parts that refuse it. Where one result stands for all of them,
two are kept and the others dropped. The exception is a topic to be deleted that is named once by name and
once by id, with hundreds of others in between: it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Any, Final

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.messages.topics import (
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    TopicPartitions,
)
from pykraft.metadata_log.controller.calls.request_cuts import CUTS, Cut, Unit
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.request_limits import refuse_excess
from pykraft.metadata_log.controller.topics.topic_walk import TopicWalk
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage

PART_COST: Final = 500
"""A part costs at most this much, in units of some ten microseconds, unless a single topic costs more."""

UNITS_AT_ONCE: Final = 1_000
"""So many units of a request are looked at in one slice, before any is decided."""

_ALIKE_AT_ONCE: Final = 200


def cut_request(
    request: Message, image_of: Callable[[], MetadataImage], config: ControllerConfig
) -> Iterator[Message | None]:
    """The parts, in order; the request itself if it is short enough, or cannot be split.

    None ends a slice of the work that finds them; ``image_of`` returns the newest image.
    :class:`KafkaError` POLICY_VIOLATION, before the first part, if the request asks for too much.
    """
    cut = CUTS.get(type(request))
    if cut is None:
        yield request
    elif asks_for_all(request):
        yield from _cut_all(request, cut, image_of)
    elif _is_short(request, cut):
        yield request
    else:
        yield None  # many that come at once begin one after the other
        groups = yield from _group(request, cut)
        named_once = (group[1] for group in groups.values() if not isinstance(group, list))
        yield from refuse_excess(request, named_once, image_of, config)
        yield from _pack(request, cut, _drain(groups))


def asks_for_all(request: Message) -> bool:
    """Whether the request is about all partitions, in place of those that it names."""
    return (isinstance(request, ElectLeadersRequest) and request.topic_partitions is None) or (
        isinstance(request, ListPartitionReassignmentsRequest) and request.topics is None
    )


def _is_short(request: Message, cut: Cut) -> bool:
    room = PART_COST
    for unit in cut.iter_units(request):
        room -= cut.cost(unit)
        if room < 0:
            return False
    return True


def _group(request: Message, cut: Cut) -> Generator[None, None, dict[Hashable, Unit | list[Unit]]]:
    """The units by identity, in order; a list for those that are named several times."""
    groups: dict[Hashable, Unit | list[Unit]] = {}
    for count, unit in enumerate(cut.iter_units(request), 1):
        identity = cut.identity(unit)
        known = groups.get(identity)
        if known is None:
            groups[identity] = unit
        elif not isinstance(known, list):
            groups[identity] = [known, unit]
        elif not cut.answered_once:
            known.append(unit)
        if count % UNITS_AT_ONCE == 0:
            yield None
    return groups


def _drain(groups: dict[Hashable, Unit | list[Unit]]) -> Iterator[Unit | list[Unit]]:
    """The groups, of which none is kept: the answer takes their place."""
    left = list(groups.values())
    groups.clear()
    left.reverse()
    while left:
        yield left.pop()


def _pack(request: Message, cut: Cut, groups: Iterable[Unit | list[Unit]]) -> Iterator[Message]:
    pack: list[Unit] = []
    room = PART_COST
    for group in groups:
        for units in _split(group) if isinstance(group, list) else ([group],):
            cost = sum(map(cut.cost, units))
            if cost > room and pack:
                yield _part(request, cut, pack)
                pack, room = [], PART_COST
            pack += units
            room -= cost
    yield _part(request, cut, pack)


def _split(alike: list[Unit]) -> Iterator[list[Unit]]:
    """Units that are named several times, never one alone."""
    starts = range(0, len(alike) - 1, _ALIKE_AT_ONCE)
    for start in starts:
        yield alike[start:] if start == starts[-1] else alike[start : start + _ALIKE_AT_ONCE]


def _part(request: Message, cut: Cut, pack: Sequence[Unit]) -> Message:
    part = copy(request)
    for attribute in cut.lists:
        items: list[Any] = []
        last = None
        for _, item, element in (unit for unit in pack if unit[0] == attribute):
            if element is None:
                items.append(item)
                continue
            assert cut.inner is not None
            if item is not last:
                last = item
                items.append(copy(item))
                setattr(items[-1], cut.inner[0], [])
            getattr(items[-1], cut.inner[0]).append(element)
        setattr(part, attribute, items)
    return part


def _cut_all(request: Message, cut: Cut, image_of: Callable[[], MetadataImage]) -> Iterator[Message | None]:
    """The parts of a request for all partitions; at least one, so that there is a response."""
    walk = TopicWalk(image_of(), UNITS_AT_ONCE)
    is_empty = True
    while not walk.is_complete:
        found: list[Unit] = []

        def visit(topic: TopicImage, start: int, most: int, found: list[Unit] = found) -> int:
            item, seen = _item(request, topic), 0
            for partition in islice(topic.partitions, start, start + most):
                if _concerns(request, partition):
                    found.append((cut.lists[0], item, start + seen))
                seen += 1
            return seen

        walk.next_slice(image_of(), visit)
        if found:
            yield from _pack(request, cut, found)
            is_empty = False
        else:
            yield None
    if is_empty:
        yield _part(request, cut, ())


def _item(request: Message, topic: TopicImage) -> TopicPartitions | ListPartitionReassignmentsTopics:
    if isinstance(request, ElectLeadersRequest):
        return TopicPartitions(topic=topic.name)
    return ListPartitionReassignmentsTopics(name=topic.name)


def _concerns(request: Message, partition: PartitionRegistration) -> bool:
    if not isinstance(request, ElectLeadersRequest):
        return partition.is_reassigning
    if request.election_type == ElectionType.PREFERRED:
        return partition.leader != partition.replicas[0]
    return not partition.has_leader
