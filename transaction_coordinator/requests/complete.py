"""All markers of a transaction are written: the next one may begin.

Markers are written by others, after the Prepare record was committed, and again by each new coordinator that
finds it; they are the same each time. The report that all are written may come late, or twice. It counts only
while the transaction is the one that it is about.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.log.records import record_of
from pykraft.transaction_coordinator.result import NOTHING, CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import NO_PRODUCER_EPOCH, PREPARED, Transaction
from pykraft.transaction_coordinator.transitions import to_complete


def handle_complete(state: ShardState, prepared: Transaction, call: Call) -> CoordinatorResult:
    """``prepared``: the value whose markers were written."""
    assert prepared.state in PREPARED
    found = state.transactions.get(prepared.transactional_id)
    if found is None or _logged(found) != _logged(prepared):
        return NOTHING
    return CoordinatorResult(None, (record_of(to_complete(found, call.wall_ms)),))


def _logged(value: Transaction) -> Transaction:
    """Without what a coordinator forgets that takes the shard over."""
    return replace(value, last_producer_epoch=NO_PRODUCER_EPOCH)
