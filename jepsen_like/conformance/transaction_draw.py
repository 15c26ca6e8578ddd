"""Draws what requests of transactional producers need; mostly sound, sometimes not."""

from dataclasses import dataclass
from typing import Any, Final

from pykraft.jepsen_like.conformance.draw import ACTORS, Draw
from pykraft.jepsen_like.conformance.producer_blanks import STRANGER_ID, ProducerEpoch, ProducerId
from pykraft.jepsen_like.conformance.script import NO_TOPIC, TopicName, TransactionalId, blank
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.messages.offsets import TxnOffsetCommitRequest
from pykraft.kafka_protocol.messages.records import ProduceRequest
from pykraft.kafka_protocol.messages.transactions import EndTxnRequest

TRANSACTION_TOPICS: Final = (("apples", 2), ("berries", 1))
"""Each run makes them for itself."""
PLACES: Final = tuple((name, index) for name, count in TRANSACTION_TOPICS for index in range(count))
OWN_IDS: Final = ("t", "t", "u")
"""The transactional id of each actor: two share one, so that either may be a zombie."""
LAST_EPOCH: Final = 32766

_SECOND_RULES: Final[dict[type[Message], int]] = {
    ProduceRequest: 12,
    TxnOffsetCommitRequest: 5,
    EndTxnRequest: 5,
}
"""The first version of the rules of transaction.version 2 (KIP-890)."""


@dataclass(slots=True)
class TransactionDraw(Draw):
    """``newer``: the actors that go by the rules of transaction.version 2."""

    newer: frozenset[int] = frozenset()
    records: int = 0
    """How many have been produced so far, which numbers the next one."""

    def version_of(self, actor: int, request: type[Message]) -> int:
        """As a client of the actor's rules would choose it, mostly."""
        first = _SECOND_RULES.get(request)
        if first is None or self.rarely(12):
            return self.version(request)
        if actor in self.newer:
            return self.version(request, least=first)
        return self.version(request, most=first - 1)

    def transactional_id(self, actor: int) -> Any:
        own = blank(TransactionalId(OWN_IDS[actor % ACTORS]))
        return self.some(
            (60, own), (2, blank(TransactionalId("u"))), (1, blank(TransactionalId("never"))), (1, "")
        )

    def producer_id(self, actor: int) -> Any:
        return self.some(
            (60, blank(ProducerId(actor))),
            (2, blank(ProducerId((actor + 1) % ACTORS))),
            (1, blank(ProducerId(actor, older=True))),
            (1, STRANGER_ID),
            (1, -1),
        )

    def producer_epoch(self, actor: int) -> Any:
        return self.some(
            (60, blank(ProducerEpoch(actor))),
            (3, blank(ProducerEpoch(actor, -1))),
            (3, blank(ProducerEpoch(actor, 1))),
            (1, blank(ProducerEpoch(actor, older=True))),
            (1, -1),
            (1, 0),
            (1, LAST_EPOCH),
        )

    def topic_name(self, name: str) -> Any:
        return name if name == NO_TOPIC else blank(TopicName(name))

    def places(self, least: int = 1) -> dict[str, list[int]]:
        """Partitions by topic, now and then one that does not exist."""
        chosen: list[tuple[str, int]] = list(self.subset(PLACES, least=least))
        if self.rarely(20):
            chosen.append(self.rng.choice([(NO_TOPIC, 0), ("apples", 7)]))
        self.rng.shuffle(chosen)
        found: dict[str, list[int]] = {}
        for name, index in chosen:
            found.setdefault(name, []).append(index)
        return found
