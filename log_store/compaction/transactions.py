"""Transactions in a log that is compacted: which data was aborted, and which markers are still needed.

What was aborted is found in the markers of the log itself: all transactions below the end of a round are
complete, so every one that has data left has its marker there. Kafka reads the same from its ``.txnindex``
files; a compacted segment gets such a file, so that Kafka finds what it expects.

A marker is needed as long as data of its transaction is in the log. When a round finds none it sets the
marker's delete horizon; a later round removes the marker (KAFKA-4545, KIP-354).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pykraft.kafka_protocol.markers import ABORT, OTHER, Marker
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.indexes.transaction_index import AbortedTransaction


class TransactionScan:
    """Walks over a log, oldest batch first, and collects the transactions that were aborted."""

    def __init__(self) -> None:
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        """The first offset of each transaction that is under way, by producer id."""

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction begins that is not complete."""
        return min(self._open.values(), default=None)

    def note(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """The next batch; ``marker``: of a control batch. Returns what it aborts, also in ``aborted``."""
        if header.is_control:
            return self._note_marker(header, marker)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)
        return None

    def _note_marker(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        if marker is None or not marker.ends_transaction:
            return None
        first_offset = self._open.pop(header.producer_id, None)
        if marker.kind != ABORT or first_offset is None:
            return None
        stable = min(self._open.values(), default=header.last_offset + 1)
        aborted = AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)
        self.aborted.append(aborted)
        return aborted


class CleanedTransactions:
    """The transactions that one pass over a log has seen."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """The producers of whose current transaction data was seen."""
        self._indexed: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch, the next one of the pass, belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def is_needless(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch, the next one of the pass, ends a transaction without data, or is empty."""
        if kind is None:
            return True
        if kind == OTHER:
            return False
        self._begin_up_to(header.last_offset)
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        aborted = self._aborted.pop(header.producer_id, None)
        if kind == ABORT and aborted is not None and had_data:
            self._indexed.append(aborted)
        return not had_data

    def take_index(self) -> list[AbortedTransaction]:
        """The entries of the transaction index for the batches since the last call."""
        indexed, self._indexed = self._indexed, []
        return indexed

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
