"""Blanks for what a producer learns: its id, its epoch, and batches with both and a sequence."""

from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.conformance.script import Facts
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

STRANGER_ID: Final = 10**12
"""A producer id that no system hands out; it stands for itself in answers, as all above it do."""
FIRST_TIME_MS: Final = 1_500_000_000_000
"""The time of the first record of a script; each record is a second later than the one before."""
LAST_TIME_MS: Final = FIRST_TIME_MS + 10**9
_STEP_MS: Final = 1_000
_MAX_SEQUENCE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProducerId:
    """The producer id that the actor has, or the one that it had before its last epoch."""

    actor: int
    older: bool = False

    def fill(self, facts: Facts) -> int:
        producer = facts.actor(self.actor).producer
        if self.older:
            return producer.older[-1][0] if producer.older else NO_PRODUCER_ID
        return producer.id

    def __repr__(self) -> str:
        return f"{{{'older ' * self.older}producer id of {self.actor}}}"


@dataclass(frozen=True, slots=True)
class ProducerEpoch:
    """The producer epoch that the actor knows, and so many more."""

    actor: int
    more: int = 0
    older: bool = False

    def fill(self, facts: Facts) -> int:
        producer = facts.actor(self.actor).producer
        if self.older:
            return producer.older[-1][1] if producer.older else NO_PRODUCER_EPOCH
        return producer.epoch + self.more

    def __repr__(self) -> str:
        more = f" {self.more:+}" if self.more else ""
        return f"{{{'older ' * self.older}producer epoch of {self.actor}{more}}}"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of records numbered from ``number`` on.

    ``gap``: how far its sequence is from the one that comes next, ``None`` for a batch without producer.
    ``epoch_more``: how far its epoch is from that of the actor. ``producer``: whose id it has.
    """

    actor: int
    topic: str
    partition: int
    number: int
    count: int = 1
    gap: int | None = 0
    epoch_more: int = 0
    producer: int | None = None
    transactional: bool = True

    @property
    def owner(self) -> int:
        """The actor whose producer id it has."""
        return self.actor if self.producer is None else self.producer

    def fill(self, facts: Facts) -> bytes:
        own = facts.actor(self.actor).producer
        producer = facts.actor(self.owner).producer
        records = [
            RecordInput(None, b"%d" % number, (), FIRST_TIME_MS + number * _STEP_MS)
            for number in range(self.number, self.number + self.count)
        ]
        if self.gap is None:
            return encode_batch(records, is_transactional=self.transactional)
        place = self.topic, self.partition
        sequence = max(own.next_sequences.get(place, 0) + self.gap, NO_SEQUENCE) & _MAX_SEQUENCE
        own.sent[place] = sequence + self.count
        return encode_batch(
            records,
            producer_id=producer.id,
            producer_epoch=max(own.epoch + self.epoch_more, NO_PRODUCER_EPOCH),
            base_sequence=sequence,
            is_transactional=self.transactional,
        )

    def __repr__(self) -> str:
        parts = [f"{self.count} from {self.number}"]
        parts += [] if self.transactional else ["not transactional"]
        parts += ["no producer"] if self.gap is None else [f"gap {self.gap}"] if self.gap else []
        parts += [f"epoch {self.epoch_more:+}"] if self.epoch_more else []
        parts += [] if self.producer is None else [f"id of {self.producer}"]
        return f"<{', '.join(parts)}>"
