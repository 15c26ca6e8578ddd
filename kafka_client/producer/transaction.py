"""A producer's transaction, as its parts share it.

Who writes, by which rules, which partitions take part, and what went wrong. By the rules of
``transaction.version`` 2 (KIP-890) a leader puts its partition into the transaction when it is written to,
and every transaction has an epoch of its own. By the older rules the producer has to ask for each partition
first, and keeps its epoch.

A transaction that lost a record can only be aborted: ``failure`` is the first reason. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.lazy_dataclass import dataclass

LAST_PRODUCE_VERSION_WITHOUT_ENROLMENT: Final = 11
"""From the next version on the leader puts the partition into the transaction itself."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's names. ``transaction_timeout_ms``: the coordinator aborts what takes longer."""

    transactional_id: str
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if not self.transactional_id:
            raise ValueError("transactional.id must not be empty")
        if self.transaction_timeout_ms <= 0:
            raise ValueError("transaction.timeout.ms must be positive")


class ProducerIdentity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    producer_epoch: int


class ProducerTransaction:
    """One object for all transactions of a producer, one after another.

    ``is_implicit``: by the rules of KIP-890. ``missing``: partitions with records that the coordinator has to
    be asked for; ``enrolled``: those of which it is known. ``is_in_doubt``: a request of this transaction may
    still arrive after its end, so that the epoch must change before the next one.
    """

    def __init__(self, config: TransactionConfig) -> None:
        self.config = config
        self.identity: ProducerIdentity | None = None
        self.is_open = False
        self.is_implicit = False
        self.is_in_doubt = False
        self.failure: KafkaError | None = None
        self.missing: dict[TopicPartition, None] = {}
        self.enrolled: set[TopicPartition] = set()
        self.has_offsets = False

    @property
    def is_known_to_coordinator(self) -> bool:
        """Whether there may be something to end."""
        return bool(self.enrolled) or self.has_offsets or self.is_in_doubt

    def begin(self, *, is_implicit: bool) -> None:
        assert self.identity is not None, "a producer id comes first"
        self.is_open, self.is_implicit = True, is_implicit

    def end(self, identity: ProducerIdentity) -> None:
        """The transaction is over; the next one is written as ``identity``."""
        self.identity = identity
        self.is_open = self.is_in_doubt = self.has_offsets = False
        self.failure = None
        self.missing.clear()
        self.enrolled.clear()

    def touch(self, partition: TopicPartition) -> None:
        """A record for this partition was accepted."""
        if self.is_implicit:
            self.enrolled.add(partition)
        elif partition not in self.enrolled:
            self.missing[partition] = None

    def admits(self, partition: TopicPartition) -> bool:
        """Whether the partition may be written to now."""
        return partition in self.enrolled

    def enrol(self, partitions: list[TopicPartition]) -> None:
        """The coordinator has put these into the transaction."""
        self.enrolled.update(partitions)
        for partition in partitions:
            self.missing.pop(partition, None)

    def fail(self, error: KafkaError, *, leaves_gap: bool) -> None:
        """It can only be aborted now. ``leaves_gap``: a batch that has a sequence was given up."""
        if not self.is_open:
            return
        if self.failure is None:
            self.failure = error
        self.is_in_doubt = self.is_in_doubt or leaves_gap
