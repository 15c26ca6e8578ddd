"""The transactions of one partition: which are open, and which hold back readers of committed records.

A transaction begins with its first batch here and ends with its marker. Records from the first offset of an
open transaction on are undecided. A transaction that is decided by a marker that is not yet committed still
counts: another leader might not have the marker. Whether a marker may be written is decided here, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, EndOfTransaction
from pykraft.log_store.indexes.transaction_index import AbortedTransaction

LAST_PRODUCER_EPOCH = 0x7FFF
EPOCH_BUMPED_FROM = 2
"""The transaction version in which every marker has a higher epoch than its transaction (KIP-890)."""


class Transactions:
    """The open transactions, oldest first, and the ended ones whose markers are not committed.

    ``high_watermark``: as far as it is known; a marker below is committed. ``open`` and ``ended`` are
    read-only for others: nothing holds back readers while both are empty.
    """

    __slots__ = ("_high_watermark", "ended", "open")

    def __init__(self, high_watermark: int = 0) -> None:
        self._high_watermark = high_watermark
        self.open: dict[int, int] = {}
        # (first offset, offset of the marker), both rising: one that began later than the next is left out,
        # as that one holds readers back at an earlier offset, and for longer.
        self.ended: deque[tuple[int, int]] = deque()

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A transaction has begun, later than all that are open."""
        self.open[producer_id] = first_offset

    def restore(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """Take (producer id, first offset) of all open transactions; none has ended that counts."""
        self.open = dict(sorted(open_transactions, key=lambda one: one[1]))
        self.ended.clear()

    def end(self, producer_id: int, marker_offset: int, kind: int) -> AbortedTransaction | None:
        """A marker is in the log; returns what it aborts, if it aborts anything."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return None
        if marker_offset >= self._high_watermark:
            while self.ended and self.ended[-1][0] >= first_offset:
                self.ended.pop()
            self.ended.append((first_offset, marker_offset))
        if kind != ABORT:
            return None
        first_open = self.first_open_offset
        stable = marker_offset + 1 if first_open is None else first_open
        return AbortedTransaction(producer_id, first_offset, marker_offset, stable)

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self.open.values()), None)

    def cancel(self, producer_id: int) -> None:
        """The first batch of an open transaction was truncated."""
        del self.open[producer_id]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is not decided for good; None if there is none."""
        self._high_watermark = high_watermark
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first_open = self.first_open_offset
        if ended and (first_open is None or ended[0][0] < first_open):
            return ended[0][0]
        return first_open


def check_end(
    end: EndOfTransaction, stored_epoch: int, stored_coordinator_epoch: int, *, is_open: bool
) -> None:
    """Whether a marker may be written, by what the log knows of its producer (-1: nothing).

    A producer epoch that is too low is refused with INVALID_PRODUCER_EPOCH, since the marker may end a later
    transaction. With bumped epochs that includes an equal one, unless nothing is open that it could end: it
    then repeats the last marker. (An open transaction of the last epoch there is cannot be ended otherwise.)
    """
    epoch = end.producer_epoch
    refused = epoch < stored_epoch
    if end.transaction_version >= EPOCH_BUMPED_FROM and epoch == stored_epoch:
        refused = is_open and epoch != LAST_PRODUCER_EPOCH
    if refused:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {end.producer_id} has epoch {stored_epoch}, a marker of epoch {epoch} comes too late",
        )
    if end.marker.coordinator_epoch < stored_coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"producer {end.producer_id}: a marker of coordinator epoch {end.marker.coordinator_epoch}"
            f" after one of {stored_coordinator_epoch}",
        )
