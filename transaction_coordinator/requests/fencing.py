"""Aborts an open transaction on behalf of nobody: its producer was replaced, or took too long.

The epoch rises first, in the same record, so that the old producer can neither commit nor write more.
"""

from __future__ import annotations

from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.transaction import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from pykraft.transaction_coordinator.transitions import to_fenced


def fence(old: Transaction, call: Call) -> Transaction:
    """The aborted transaction. By the rules of TV_2 an id whose epochs are used up needs a new one."""
    assert old.state is TransactionState.ONGOING
    needs_id = old.is_exhausted and call.transaction_version >= TransactionVersion.TV_2
    return to_fenced(
        old,
        call.wall_ms,
        server_version=call.transaction_version,
        next_producer_id=call.take_producer_id() if needs_id else NO_PRODUCER_ID,
    )
