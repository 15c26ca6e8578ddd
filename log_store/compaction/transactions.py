"""Transactions in a log that is compacted: which data was aborted, and which markers are still needed.

What was aborted is found in the markers of the log itself: all transactions below the end of a round are
complete, so every one that has data left has its marker there. Kafka reads the same from its ``.txnindex``
files; a compacted segment gets such a file, so that Kafka finds what it expects.

A marker is needed as long as data of its transaction is in the log. When a round finds none it sets the
marker's delete horizon; a later round removes the marker (KAFKA-4545, KIP-354).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader

_INDEX_ENTRY = struct.Struct(">hqqqq")
_INDEX_VERSION = 0
_MARKER_KEY = struct.Struct(">hh")
ABORT = 0
COMMIT = 1
OTHER = -1


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index. ``last_offset``: of the marker. ``last_stable_offset``: after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a transaction index file: entries in the order of their markers."""
    return b"".join(_INDEX_ENTRY.pack(_INDEX_VERSION, *transaction) for transaction in transactions)


def read_marker(header: BatchHeader, batch: bytes) -> int | None:
    """:data:`ABORT`, :data:`COMMIT` or :data:`OTHER` of a control batch; None if it is empty."""
    records = decode_batch(batch, header)
    if not records:
        return None
    key = records[0].key
    if key is None or len(key) < _MARKER_KEY.size:
        return OTHER
    kind: int = _MARKER_KEY.unpack_from(key)[1]
    return kind if kind in (ABORT, COMMIT) else OTHER


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

    def note_data(self, header: BatchHeader) -> None:
        """A data batch of a transaction."""
        self._open.setdefault(header.producer_id, header.base_offset)

    def note_marker(self, header: BatchHeader, kind: int | None) -> None:
        if kind in (ABORT, COMMIT):
            first_offset = self._open.pop(header.producer_id, None)
            if kind == ABORT and first_offset is not None:
                stable = min(self._open.values(), default=header.last_offset + 1)
                self.aborted.append(
                    AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)
                )


class CleanedTransactions:
    """What one pass over a log has seen of its transactions."""

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
