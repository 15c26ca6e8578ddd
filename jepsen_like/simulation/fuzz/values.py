"""Values for the fields of requests: what exists on the fuzzed node, what does not, and extremes.

A field is known by its kind and its name, which is Kafka's.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.jepsen_like.simulation.fuzz.fuzzed_node import LOG_DIRS
from pykraft.jepsen_like.simulation.fuzz.likely import (
    BITS,
    FEATURES,
    GROUPS,
    NUMBERS,
    PARTITIONS,
    STRANGE,
    TOO_MANY_PARTITIONS,
    TOPICS,
    VALUES,
)
from pykraft.kafka_protocol.codec.field_types import FieldSpec
from pykraft.kafka_protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.primitives import MAX_STRING_BYTES
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch


@dataclass
class Known:
    """Names that exist on the node, or once did."""

    topics: list[str] = field(default_factory=list)
    topic_ids: list[Uuid] = field(default_factory=list)
    partitions: int = 1
    """The partitions of each topic."""


class Values:
    """Draws values. ``extreme``: every number is at one of its ends. ``long``: strings are, too."""

    def __init__(self, rng: Random, known: Known) -> None:
        self._rng = rng
        self._known = known
        self.extreme = False
        self.long = False

    def draw(self, spec: FieldSpec, kind: str, owner: str, version: int) -> Any:
        """A value of one field, or an element of its array, in the table ``owner``."""
        rng = self._rng
        if spec.kind != "array" and version in spec.nullable and rng.random() < 0.2:
            return None
        match kind:
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice((0.0, -1.0, 1e308))
            case "uuid":
                known = self._known.topic_ids
                drawn = [ZERO_UUID, Uuid(rng.randbytes(16))]
                return rng.choice(known) if known and rng.random() < 0.6 else rng.choice(drawn)
            case "string":
                return self._text(spec.name, owner)
            case "bytes":
                return self._bytes(spec.name)
            case "records":
                return self._records()
            case _:
                return self._number(spec.name, kind)

    def numbered(self, spec: FieldSpec, kind: str, owner: str, number: int) -> Any:
        """As :meth:`draw`, a different value for each ``number``; what exists comes first."""
        known = self._known
        match kind:
            case "string" if self._is_topic(spec.name, owner):
                return known.topics[number] if number < len(known.topics) else f"t{number}"
            case "string":
                return f"g{number}"
            case "uuid":
                ids = known.topic_ids
                return ids[number] if number < len(ids) else Uuid(number.to_bytes(16, "big"))
            case "bytes" | "records" | "bool" | "float64":
                return self.draw(spec, kind, owner, 0)
            case _:
                return number % (1 << (BITS.get(kind, 16) - 1))

    @staticmethod
    def _is_topic(name: str, owner: str) -> bool:
        return name in TOPICS or (name == "name" and "Topic" in owner)

    def _number(self, name: str, kind: str) -> int:
        rng = self._rng
        if kind.startswith("u"):
            return rng.choice((0, 1, (1 << int(kind[4:])) - 1))
        limit = 1 << (BITS[kind] - 1)
        if self.extreme:
            return rng.choice((-limit, limit - 1))
        if name in ("num_partitions", "count") and rng.random() < 0.1:
            return rng.choice((*TOO_MANY_PARTITIONS, 1000))
        if rng.random() < 0.75:
            if name in PARTITIONS:
                return rng.randrange(self._known.partitions + 1)
            likely = [one for one in NUMBERS.get(name, (0, 1, 100)) if -limit <= one < limit]
            if likely:
                return rng.choice(likely)
        if name in ("num_partitions", "count", "broker_id"):
            return 7 if name == "broker_id" else 1
        return rng.choice((0, -1, 1, limit - 1, -limit, rng.randrange(-limit, limit)))

    def _text(self, name: str, owner: str) -> str:
        rng = self._rng
        if self.long and rng.random() < 0.5:
            return "x" * MAX_STRING_BYTES
        if rng.random() < 0.05:
            return rng.choice(STRANGE)
        if self._is_topic(name, owner):
            return self.topic()
        if name in GROUPS:
            return f"group-{rng.randrange(20)}"
        if name in ("transactional_id", "transactional_ids"):
            return f"transactional-{rng.randrange(10)}"
        match name:
            case "resource_name":
                return rng.choice((self.topic(), "1", "", "2", "group-1"))
            case "member_id":
                return rng.choice(("", f"member-{rng.randrange(10)}"))
            case "protocol_type":
                return rng.choice((PROTOCOL_TYPE, "connect"))
            case "path":
                return rng.choice((*LOG_DIRS, "/not/there"))
            case "value":
                return rng.choice(VALUES)
            case "feature":
                return rng.choice(FEATURES)
            case "subscribed_topic_regex":
                return rng.choice((".*", "topic-1.*", "(a+)+b", "[", "x" * 200))
            case "name" if "Config" in owner:
                return rng.choice((*TOPIC_KEYS, *GROUP_KEYS, "no.such.key", "pykraft.part3"))
            case "configuration_keys":
                return rng.choice(tuple(TOPIC_KEYS))
            case _:
                return rng.choice(("", "a", "range", "roundrobin", f"name-{rng.randrange(50)}"))

    def topic(self) -> str:
        rng, topics = self._rng, self._known.topics
        if topics and rng.random() < 0.7:
            return rng.choice(topics)
        return f"new-{rng.randrange(30)}"

    def _bytes(self, name: str) -> bytes:
        rng = self._rng
        topics = [self.topic() for _ in range(rng.randrange(3))]
        return rng.choice(
            (
                b"",
                rng.randbytes(20),
                encode_subscription(ConsumerProtocolSubscription(topics=topics)),
                encode_assignment(ConsumerProtocolAssignment()),
                bytes(MAX_STRING_BYTES if self.long else 100),
            )
        )

    def _records(self) -> bytes | None:
        rng = self._rng
        if rng.random() < 0.2:
            return rng.choice((None, b"", rng.randbytes(80)))
        inputs = [RecordInput(b"k", bytes(10), (), rng.choice((0, 1_700_000_000_000, -1)))]
        batch = bytearray(
            encode_batch(
                inputs * rng.choice((1, 3, 50)),
                producer_id=rng.choice((-1, -1, 0, 1000)),
                producer_epoch=rng.choice((-1, 0)),
                base_sequence=rng.choice((-1, 0)),
                is_transactional=rng.random() < 0.1,
            )
        )
        if rng.random() < 0.1:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        return bytes(batch)
