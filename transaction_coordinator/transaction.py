"""The value of one transactional id: its producer, and its latest transaction.

Immutable; :mod:`.transitions` has every way from one value to the next.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

from pykraft.lazy_dataclass import dataclass

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 0x7FFF
LAST_EPOCH_OF_CLIENTS: Final = MAX_PRODUCER_EPOCH - 1
"""No client is given the epoch after it, so that there is always one more with which to fence."""

NO_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""The timeout of transactions that only an external coordinator ends (KIP-939), if Kafka wrote some."""

TopicPartition: TypeAlias = tuple[str, int]
Partitions: TypeAlias = frozenset[TopicPartition]
"""By name, not by id, as in Kafka's records."""

NO_PARTITIONS: Partitions = frozenset()


class TransactionState(IntEnum):
    """Numbers and names are Kafka's. The last two are never in the log: Kafka has them in memory only."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As administrators see it."""
        return self.name.title().replace("_", "")


COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE: Final = COMPLETE | {TransactionState.EMPTY}
"""No transaction is open; the next may begin, and the id may expire."""


class TransactionVersion(IntEnum):
    """``transaction.version`` (KIP-890): the feature of a cluster, and the rules that a client goes by.

    TV_1: records of version 1. TV_2: each transaction has an epoch of its own. A client is TV_0 or TV_2.
    """

    TV_0 = 0
    TV_1 = 1
    TV_2 = 2


@dataclass(frozen=True, slots=True)
class Transaction:
    """``producer_epoch``: the epoch that the next request must carry.

    ``last_producer_epoch``: the one before, if its holder may not have received the answer that raised it, or
    -1. It is in no record, so a new coordinator does not know it. ``previous_producer_id``: the id before the
    last change, most often the same. ``next_producer_id``: while a transaction is prepared whose epoch is the
    last, the id that its completion moves on to; else -1. ``start_timestamp_ms``: -1 before the first
    transaction since InitProducerId.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    last_update_timestamp_ms: int
    start_timestamp_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: TransactionVersion = TransactionVersion.TV_0
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for another client."""
        return self.producer_epoch >= LAST_EPOCH_OF_CLIENTS

    def is_producer_of_next(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the completion moves on to that producer. Its client may know it already, by EndTxn."""
        return self.next_producer_id != NO_PRODUCER_ID and (
            (producer_id, producer_epoch) == (self.next_producer_id, 0)
        )

    @property
    def deadline_ms(self) -> int | None:
        """An open transaction is aborted after this time; None if there is none, or it has no timeout."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_timestamp_ms + self.timeout_ms
