"""The records of ``__transaction_state``, the state of a transaction coordinator, as values.

There is one type: the key is a transactional id, the value all that is known of it. A value of None deletes
the id (a tombstone). Its bytes are in :mod:`.codec`, its meaning in :mod:`.replay`.
"""

from __future__ import annotations

from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    transactional_id: str
    value: Transaction | None


def record_of(value: Transaction) -> TransactionRecord:
    return TransactionRecord(value.transactional_id, value)
