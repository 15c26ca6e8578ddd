"""Answers as plain values in which everything is hidden that differs from one run to the next.

Ids of members that a coordinator made up become numbers, in order of appearance and by the name they begin
with, producer ids become numbers, too; ids of topics, and names that a run has of its own, become the names
that the script uses. Throttle times are left out; of an error message, a port, or a time that is not from the
script, only its presence remains; record sets are told batch by batch. Lists are sorted, those in assignments
too: neither system promises an order.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pykraft.jepsen_like.conformance.producer_blanks import FIRST_TIME_MS, LAST_TIME_MS, STRANGER_ID
from pykraft.jepsen_like.conformance.told_batches import told
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.consumer_protocol import decode_assignment
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import ListGroupsResponse
from pykraft.kafka_protocol.messages.records import FetchableTopicResponse, FetchResponse, ProduceResponse
from pykraft.kafka_protocol.messages.transactions import DescribeProducersResponse, ListTransactionsResponse
from pykraft.kafka_protocol.primitives import ProtocolError

_UUID_CHARACTERS: Final = 36
_ASSIGNMENTS: Final = frozenset({"assignment", "member_assignment"})
_TIMES: Final = frozenset(
    {"transaction_start_time_ms", "last_timestamp", "log_append_time_ms", "timestamp", "max_timestamp"}
)
_MEMBER_IDS: Final = frozenset({"member_id", "leader"})

Plain = dict[str, Any]


class Masks:
    """The masks of one run. ``said`` are the strings that the script itself says."""

    def __init__(self, said: frozenset[str], names: Mapping[str, str], topics: Mapping[Uuid, str]) -> None:
        """``names`` and ``topics``: the script's name of each name and topic id of this run."""
        self._said = said | {""}
        self._names = names
        self._topics = topics
        self._members: dict[str, str] = {}
        self._producers: dict[int, str] = {}
        self._numbers: Counter[str] = Counter()

    def see(self, member_id: str) -> None:
        """Number this id, if it is new, before others."""
        self._member(member_id)

    def plain(self, answer: Message) -> Plain:
        if isinstance(answer, ListGroupsResponse):
            answer.groups = [group for group in answer.groups if group.group_id in self._names]
        if isinstance(answer, ListTransactionsResponse):
            answer.transaction_states = [
                one for one in answer.transaction_states if one.transactional_id in self._names
            ]
        if isinstance(answer, FetchResponse):
            _merge_topics(answer)
        _drop_explanations(answer)
        plain: Plain = self._value("", answer, number_new=True)
        return plain

    def _value(self, name: str, value: Any, *, number_new: bool) -> Any:
        match value:
            case str() if name in _MEMBER_IDS:
                return self._member(value) if number_new else self._members.get(value, _beginning(value))
            case str() if name == "error_message":
                return "some message"
            case str():
                return self._names.get(value, value)
            case int() if name == "producer_id" and 0 <= value < STRANGER_ID:
                return self._producer(value, number_new=number_new)
            case int() if name in _TIMES and value >= 0 and not FIRST_TIME_MS <= value < LAST_TIME_MS:
                return "some time"
            case int() if name == "port" and value > 0:
                return "some port"
            case bytes() | memoryview() | None if name == "records":
                return self._value("batches", told(value), number_new=number_new)
            case dict():
                return {key: self._value(key, part, number_new=number_new) for key, part in value.items()}
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

    def _producer(self, producer_id: int, *, number_new: bool) -> str:
        if number_new:
            self._producers.setdefault(producer_id, f"<producer {len(self._producers) + 1}>")
        return self._producers.get(producer_id, "<new producer>")

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
    """Return the start of a made-up id: the name of the client or instance, if a classic member has it."""
    return member_id[:-_UUID_CHARACTERS]


def _merge_topics(answer: FetchResponse) -> None:
    """Kafka names a topic again for partitions that it does not have."""
    merged: dict[tuple[str, Uuid], FetchableTopicResponse] = {}
    for topic in answer.responses:
        first = merged.setdefault((topic.topic, topic.topic_id), topic)
        if first is not topic:
            first.partitions += topic.partitions
    answer.responses = list(merged.values())


def _drop_explanations(answer: Message) -> None:
    """Messages of these answers: Kafka explains only a few codes."""
    match answer:
        case ProduceResponse():
            for produced in answer.responses:
                for one in produced.partition_responses:
                    one.error_message = None
        case DescribeProducersResponse():
            for described in answer.topics:
                for other in described.partitions:
                    other.error_message = None
