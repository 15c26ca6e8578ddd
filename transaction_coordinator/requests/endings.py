"""Endings without the producer: all markers are written, a transaction takes too long, an id expires.

The last two begin with a walk over the state of one moment, in steps that take microseconds, so that the
caller can pause after any of them: a step is an id to look at, or None. What is done about an id is decided
on the newest state: it may be in use again. Neither is in the log; a new coordinator walks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from pykraft.metadata_log.persistent import drain
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.log.records import TransactionRecord, record_of
from pykraft.transaction_coordinator.result import NOTHING, CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import (
    IDLE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from pykraft.transaction_coordinator.transitions import to_complete, to_fenced


def find_timed_out(state: ShardState, now_ms: int) -> Iterator[str | None]:
    """The ids of open transactions whose timeout is over, oldest deadline first; None: a step of the walk."""
    found: list[tuple[int, str]] = []  # a heap, because sorting many at once would be a long step
    for transactional_id, deadline_ms in drain(state.deadlines_ms):
        if deadline_ms < now_ms:
            heappush(found, (deadline_ms, transactional_id))
        yield None
    while found:
        yield heappop(found)[1]


def handle_timeout(state: ShardState, transactional_id: str, call: Call) -> CoordinatorResult[None]:
    """Abort the transaction if its timeout is over.

    One id at a time, since each may need a producer id of its own.
    """
    deadline_ms = state.deadlines_ms.get(transactional_id)
    if deadline_ms is None or deadline_ms >= call.wall_ms:
        return NOTHING
    aborted = fence(state.transactions[transactional_id], call)
    return CoordinatorResult(None, (record_of(aborted),), (transactional_id,))


def find_expired(state: ShardState, call: Call) -> Iterator[str | None]:
    """The ids that were not used for ``transactional.id.expiration.ms``."""
    for transactional_id, value in drain(state.transactions):
        yield transactional_id if _is_expired(value, call) else None


def handle_expiry(state: ShardState, transactional_ids: Iterable[str], call: Call) -> CoordinatorResult[None]:
    """Delete those of the ids that are still expired; the caller takes as many as fit in a batch."""
    expired = [
        name
        for name in sorted(transactional_ids)
        if (value := state.transactions.get(name)) is not None and _is_expired(value, call)
    ]
    return CoordinatorResult(None, tuple(TransactionRecord(name, None) for name in expired))


def _is_expired(value: Transaction, call: Call) -> bool:
    age_ms = call.wall_ms - value.last_update_timestamp_ms
    return value.state in IDLE and age_ms >= call.config.id_expiration_ms


def fence(old: Transaction, call: Call) -> Transaction:
    """The aborted transaction of a producer that was replaced, or took too long.

    The epoch rises in the same record, so the old producer can neither commit nor write more. By the rules
    of TV_2 an id whose epochs are used up needs a new one.
    """
    assert old.state is TransactionState.ONGOING
    needs_id = old.is_exhausted and call.transaction_version >= TransactionVersion.TV_2
    return to_fenced(
        old,
        call.wall_ms,
        server_version=call.transaction_version,
        next_producer_id=call.take_producer_id() if needs_id else NO_PRODUCER_ID,
    )


def handle_complete(state: ShardState, prepared: Transaction, call: Call) -> CoordinatorResult[None]:
    """All markers of ``prepared`` are written: the next transaction may begin.

    The report may come late, or twice: each new coordinator writes the markers again. It counts only while
    the transaction is the one that it is about.
    """
    assert prepared.state in PREPARED
    found = state.transactions.get(prepared.transactional_id)
    if found is None or _logged(found) != _logged(prepared):
        return NOTHING
    return CoordinatorResult(None, (record_of(to_complete(found, call.wall_ms)),))


def _logged(value: Transaction) -> Transaction:
    """Without what a coordinator forgets that takes the shard over."""
    return replace(value, last_producer_epoch=NO_PRODUCER_EPOCH)
