"""Answers as plain values in which everything is hidden that differs from one run to the next.

Ids of members that a coordinator made up become numbers, in order of appearance and by the name they begin
with; ids of topics and groups become the names that the script uses. Throttle times are left out, and of an
error message only its presence remains. Lists are sorted, those in assignments too: neither system
promises an order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pykraft.kafka_protocol.consumer_protocol import decode_assignment
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.list_groups import ListGroupsResponse
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.schema import Message

_UUID_CHARACTERS: Final = 36
_ASSIGNMENTS: Final = frozenset({"assignment", "member_assignment"})
_MEMBER_IDS: Final = frozenset({"member_id", "leader"})

Plain = dict[str, Any]


class Masks:
    """The masks of one run. ``said`` are the strings that the script itself says."""

    def __init__(self, said: frozenset[str], groups: Mapping[str, str], topics: Mapping[Uuid, str]) -> None:
        """``groups`` and ``topics``: the script's name of each group id and topic id of this run."""
        self._said = said | {""}
        self._groups = groups
        self._topics = topics
        self._members: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def see(self, member_id: str) -> None:
        """Number this id, if it is new, before others."""
        self._member(member_id)

    def plain(self, answer: Message) -> Plain:
        if isinstance(answer, ListGroupsResponse):
            answer.groups = [group for group in answer.groups if group.group_id in self._groups]
        plain: Plain = self._value("", answer, number_new=True)
        return plain

    def _value(self, name: str, value: Any, *, number_new: bool) -> Any:
        match value:
            case str() if name in _MEMBER_IDS:
                return self._member(value) if number_new else self._members.get(value, _beginning(value))
            case str() if name == "error_message":
                return "some message"
            case str():
                return self._groups.get(value, value)
            case bytes() if name in _ASSIGNMENTS:
                return _decoded(value)
            case bytes() if name == "topic_id":
                return self._topics.get(Uuid(value), value)
            case list() if number_new:
                # Elements with ids that are new are numbered in the order of what is known about them.
                known_order = sorted(value, key=lambda e: repr(self._value(name, e, number_new=False)))
                return sorted((self._value(name, e, number_new=True) for e in known_order), key=repr)
            case list():
                return sorted((self._value(name, e, number_new=False) for e in value), key=repr)
        if hasattr(value, "FIELDS"):
            return {
                spec.name: self._value(spec.name, getattr(value, spec.name), number_new=number_new)
                for spec in value.FIELDS
                if spec.name != "throttle_time_ms"
            }
        return value

    def _member(self, member_id: str) -> str:
        if member_id in self._said:
            return member_id
        if member_id not in self._members:
            beginning = _beginning(member_id)
            self._numbers[beginning] += 1
            self._members[member_id] = f"<{beginning}{self._numbers[beginning]}>"
        return self._members[member_id]


def _decoded(assignment: bytes) -> object:
    """The partitions by topic, whose order is not promised; the bytes, if they are something else."""
    try:
        decoded, version = decode_assignment(assignment)
    except ProtocolError:
        return assignment
    topics = {one.topic: sorted(one.partitions) for one in decoded.assigned_partitions}
    return {"version": version, "topics": topics, "user_data": decoded.user_data}


def _beginning(member_id: str) -> str:
    """What a made-up id begins with: the name of the client or instance, if it is of a classic member."""
    return member_id[:-_UUID_CHARACTERS]
