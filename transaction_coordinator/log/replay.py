"""Replays records, the only way in which state changes: takes a record and returns the next state.

Used on the live path, after a failover and in tests alike. It never reads a clock and never refuses a record
of the log: a compacted log has only the last of each id, so that any state may follow any other. What this
coordinator has just decided must follow the table (:mod:`~pykraft.transaction_coordinator.transitions`);
otherwise a handler has a bug.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.transaction_coordinator.log.records import TransactionRecord
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transitions import check_transition


def replay(state: ShardState, record: TransactionRecord) -> ShardState:
    """Apply a record of the log."""
    if record.value is None:
        return state.without_transaction(record.transactional_id)
    return state.with_transaction(record.value)


def replay_decided(state: ShardState, records: Iterable[TransactionRecord]) -> ShardState:
    """Apply what a handler has decided on ``state``. AssertionError if no decision may lead there."""
    for record in records:
        check_transition(state.transactions.get(record.transactional_id), record.value)
        state = replay(state, record)
    return state
