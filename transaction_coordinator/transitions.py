"""Every way from one value of a transactional id to the next: the table, and a function for each destination.

- **Empty** (InitProducerId): no transaction since its producer began. A new producer gets the next epoch, or
  a new id at epoch 0 if the epochs of the old one are used up; a retry gets the same.
- **Ongoing** (the first partition, and each further one): the epoch stays.
- **PrepareCommit**, **PrepareAbort** (EndTxn): how the transaction ends is decided, and never changes;
  markers are being written. By the rules of TV_2 the epoch rises, so that a late request of this transaction
  cannot fall into the next one (KIP-890). A fence (InitProducerId of another producer, a timeout) is a
  PrepareAbort at the next epoch. A client of TV_2 cannot know whether anything reached the coordinator, and
  may abort a transaction that does not exist.
- **CompleteCommit**, **CompleteAbort**: all markers are written. If the epoch was the last, a new id begins.
- A tombstone deletes an id that was not used for long.

The epoch of a producer id never falls. The last one, 32767, is given to no client: it is left for a fence.
Kafka's states Dead and PrepareEpochFence are not here: they stand for an append that is under way, and here
what was decided counts at once, for the decisions that follow.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.transaction import (
    MAX_PRODUCER_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Partitions,
    Transaction,
    TransactionState,
    TransactionVersion,
)


class Producer(Enum):
    """How producer id and epoch change along an edge."""

    SAME = "same"
    BUMPED = "the same id at the next epoch"
    NEW_ID = "another id at epoch 0"


@dataclass(frozen=True, slots=True)
class Edge:
    allowed: frozenset[Producer]
    reason: str


def _edge(reason: str, *allowed: Producer) -> Edge:
    return Edge(frozenset(allowed), reason)


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
SAME, BUMPED, NEW_ID = Producer.SAME, Producer.BUMPED, Producer.NEW_ID

TRANSITIONS: MappingProxyType[tuple[TransactionState | None, TransactionState | None], Edge] = (
    MappingProxyType(
        {
            (None, EMPTY): _edge("the first InitProducerId", NEW_ID),
            (EMPTY, EMPTY): _edge("InitProducerId; its retry; epochs used up", BUMPED, SAME, NEW_ID),
            (COMPLETE_COMMIT, EMPTY): _edge("as from Empty", BUMPED, SAME, NEW_ID),
            (COMPLETE_ABORT, EMPTY): _edge("as from Empty", BUMPED, SAME, NEW_ID),
            (EMPTY, ONGOING): _edge("the first partition", SAME),
            (COMPLETE_COMMIT, ONGOING): _edge("the first partition", SAME),
            (COMPLETE_ABORT, ONGOING): _edge("the first partition", SAME),
            (ONGOING, ONGOING): _edge("a further partition", SAME),
            (ONGOING, PREPARE_COMMIT): _edge("EndTxn by TV_0; by TV_2", SAME, BUMPED),
            (ONGOING, PREPARE_ABORT): _edge("EndTxn by TV_0; by TV_2, and a fence", SAME, BUMPED),
            (EMPTY, PREPARE_ABORT): _edge("EndTxn by TV_2 without partitions", BUMPED),
            (COMPLETE_COMMIT, PREPARE_ABORT): _edge("EndTxn by TV_2 without partitions", BUMPED),
            (COMPLETE_ABORT, PREPARE_ABORT): _edge("EndTxn by TV_2 without partitions", BUMPED),
            (PREPARE_COMMIT, COMPLETE_COMMIT): _edge("all markers; the epoch was the last", SAME, NEW_ID),
            (PREPARE_ABORT, COMPLETE_ABORT): _edge("all markers; the epoch was the last", SAME, NEW_ID),
            (EMPTY, None): _edge("not used for long"),
            (COMPLETE_COMMIT, None): _edge("not used for long"),
            (COMPLETE_ABORT, None): _edge("not used for long"),
        }
    )
)

_Value: TypeAlias = Transaction | None


def check_transition(old: _Value, new: _Value) -> None:
    """AssertionError if no decision leads from ``old`` to ``new``. None: there is no such id."""
    edge = TRANSITIONS.get((_state_of(old), _state_of(new)))
    assert edge is not None, f"illegal transition: {old} to {new}"
    if new is None:
        return
    assert 0 <= new.producer_epoch <= MAX_PRODUCER_EPOCH, f"epoch: {new}"
    producer = _change_of_producer(old, new)
    assert producer in edge.allowed, f"{edge.reason}: illegal producer: {old} to {new}"
    assert (new.next_producer_id == NO_PRODUCER_ID) or new.state in PREPARED, f"next id: {new}"
    if old is None or new.state is EMPTY:
        assert not new.partitions and new.start_timestamp_ms == -1, f"not empty: {new}"
        return
    assert new.timeout_ms == old.timeout_ms, f"another timeout: {old} to {new}"
    if new.state is ONGOING:
        assert new.partitions >= old.partitions, f"lost partitions: {old} to {new}"
    elif new.state in PREPARED:
        assert new.partitions == old.partitions, f"other partitions: {old} to {new}"
    else:
        assert not new.partitions, f"partitions of a complete transaction: {new}"
        moves = old.next_producer_id != NO_PRODUCER_ID
        assert not moves or new.producer_id == old.next_producer_id, f"next id not used: {old} to {new}"


def _state_of(value: _Value) -> TransactionState | None:
    return None if value is None else value.state


def _change_of_producer(old: _Value, new: Transaction) -> Producer | None:
    if old is None or new.producer_id != old.producer_id:
        return NEW_ID if new.producer_epoch == 0 else None
    if new.producer_epoch == old.producer_epoch == MAX_PRODUCER_EPOCH and new.state in PREPARED:
        return BUMPED  # there is no next one
    return {0: SAME, 1: BUMPED}.get(new.producer_epoch - old.producer_epoch)


def create(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The value of a new id, at its producer's first epoch."""
    return Transaction(
        transactional_id,
        producer_id,
        0,
        timeout_ms,
        EMPTY,
        NO_PARTITIONS,
        now_ms,
        previous_producer_id=producer_id,
    )


def to_empty(
    old: Transaction,
    now_ms: int,
    *,
    timeout_ms: int,
    producer_epoch: int,
    last_producer_epoch: int,
    producer_id: int | None = None,
) -> Transaction:
    """Begin a session of a producer, with another id if ``producer_id`` is given."""
    return replace(
        old,
        state=EMPTY,
        producer_id=old.producer_id if producer_id is None else producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        previous_producer_id=old.producer_id,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_timestamp_ms=-1,
        last_update_timestamp_ms=now_ms,
    )


def to_ongoing(
    old: Transaction, now_ms: int, *, added: Partitions, client_version: TransactionVersion
) -> Transaction:
    return replace(
        old,
        state=ONGOING,
        previous_producer_id=old.producer_id,
        partitions=old.partitions | added,
        start_timestamp_ms=old.start_timestamp_ms if old.state is ONGOING else now_ms,
        last_update_timestamp_ms=now_ms,
        client_version=client_version,
    )


def to_prepared(
    old: Transaction,
    now_ms: int,
    *,
    commit: bool,
    client_version: TransactionVersion,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """End the transaction by the rules of ``client_version``; by TV_2 its epoch is used up."""
    if client_version >= TransactionVersion.TV_2:
        epoch, last_epoch = min(old.producer_epoch + 1, MAX_PRODUCER_EPOCH), old.producer_epoch
    else:
        epoch, last_epoch = old.producer_epoch, old.last_producer_epoch
    return replace(
        old,
        state=PREPARE_COMMIT if commit else PREPARE_ABORT,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=old.producer_id,
        next_producer_id=next_producer_id,
        # An abort without a transaction has no start, but the completion needs one.
        start_timestamp_ms=old.start_timestamp_ms if old.state is ONGOING else now_ms,
        last_update_timestamp_ms=now_ms,
        client_version=client_version,
    )


def to_fenced(
    old: Transaction, now_ms: int, *, server_version: TransactionVersion, next_producer_id: int
) -> Transaction:
    """Abort an open transaction whose producer must not go on: its epoch is used up by any rules."""
    if server_version >= TransactionVersion.TV_2:
        return to_prepared(
            old, now_ms, commit=False, client_version=server_version, next_producer_id=next_producer_id
        )
    fenced = replace(
        old,
        producer_epoch=min(old.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return to_prepared(fenced, now_ms, commit=False, client_version=TransactionVersion.TV_0)


def to_complete(old: Transaction, now_ms: int) -> Transaction:
    """All markers are written. The epochs of a prepared ``next_producer_id`` begin."""
    assert old.state in PREPARED
    moves_on = old.next_producer_id != NO_PRODUCER_ID
    return replace(
        old,
        state=COMPLETE_COMMIT if old.state is PREPARE_COMMIT else COMPLETE_ABORT,
        producer_id=old.next_producer_id if moves_on else old.producer_id,
        producer_epoch=0 if moves_on else old.producer_epoch,
        previous_producer_id=old.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=NO_PARTITIONS,
        last_update_timestamp_ms=now_ms,
    )
