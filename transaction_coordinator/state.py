"""The state that one partition of ``__transaction_state`` holds: the values of its transactional ids.

Immutable; :mod:`pykraft.transaction_coordinator.log.replay` derives the next one.
"""

from __future__ import annotations

from dataclasses import field

from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map
from pykraft.transaction_coordinator.transaction import PREPARED, Transaction


@dataclass(frozen=True, slots=True)
class ShardState:
    """Two indexes of ``transactions``, so that what is idle costs nothing: ``deadlines_ms`` has the deadline
    of each open transaction (see :attr:`Transaction.deadline_ms`), ``prepared`` the ids whose markers are
    being written.
    """

    transactions: Map[str, Transaction] = field(default_factory=Map)
    deadlines_ms: Map[str, int] = field(default_factory=Map)
    prepared: Map[str, None] = field(default_factory=Map)

    def with_transaction(self, value: Transaction) -> ShardState:
        name = value.transactional_id
        without = self._unindexed(name)
        deadlines_ms, prepared = without.deadlines_ms, without.prepared
        deadline_ms = value.deadline_ms
        if deadline_ms is not None:
            deadlines_ms = deadlines_ms.set(name, deadline_ms)
        if value.state in PREPARED:
            prepared = prepared.set(name, None)
        return ShardState(self.transactions.set(name, value), deadlines_ms, prepared)

    def without_transaction(self, transactional_id: str) -> ShardState:
        if transactional_id not in self.transactions:
            return self
        without = self._unindexed(transactional_id)
        return ShardState(self.transactions.delete(transactional_id), without.deadlines_ms, without.prepared)

    def _unindexed(self, transactional_id: str) -> ShardState:
        deadlines_ms, prepared = self.deadlines_ms, self.prepared
        if transactional_id in deadlines_ms:
            deadlines_ms = deadlines_ms.delete(transactional_id)
        if transactional_id in prepared:
            prepared = prepared.delete(transactional_id)
        return ShardState(self.transactions, deadlines_ms, prepared)


EMPTY_STATE = ShardState()
