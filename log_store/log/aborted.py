"""The aborted transactions of a log, each in the transaction index of the segment that holds its marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import (
    LogSlice,
)
from pykraft.log_store.log.reading import Reading
from pykraft.log_store.reader import segment_index
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.log_store.segment.segment import Segment


class AbortedTransactions(Reading):
    """Noted with a marker, restored after an unclean stop, told with what a consumer reads."""

    def iter_aborted(self) -> Iterator[AbortedTransaction]:
        """All that the transaction indexes hold, in the order of the markers."""
        for segment in self._segments:
            yield from segment.aborted.entries()

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """A marker was appended that aborts a transaction with data."""
        index = self._segment_of(transaction.last_offset).aborted
        if not index.storage.exists():
            self._directory_changes += 1
        index.append(transaction)

    def restore_aborted(self, transactions: Sequence[AbortedTransaction], first_offset: int) -> None:
        """Take all aborted transactions whose markers are at or above ``first_offset``, in their order.

        Nothing from :attr:`unindexed_from` on may be left out. Entries that are right stay as they are: they
        may be durable, and the next start relies on those below the recovery point, or below the one that a
        flush under way will bring.
        """
        self.unindexed_from = None
        wanted: dict[Segment, list[AbortedTransaction]] = {}
        for transaction in transactions:
            wanted.setdefault(self._segment_of(transaction.last_offset), []).append(transaction)
        for segment in self._segments[segment_index(self._base_offsets, first_offset) :]:
            missing = segment.aborted.keep_common(wanted.get(segment, []), first_offset)
            for transaction in missing:
                self.note_aborted(transaction)
            if missing and missing[0].last_offset < max(self.recovery_point, self._flush_end_offset):
                segment.aborted.storage.flush()
                self._disk.flush_dir(self.directory)

    def aborted_in(self, piece: LogSlice, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with data in a slice that was read from ``offset`` on and bounded by
        ``end_offset``; others may be among them.

        :class:`BadIndexError` if ``on_bad_index`` is set, as :meth:`read`.
        """
        find = partial(self._find_aborted, piece, offset, end_offset)
        try:
            return find()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            return repairing_indexes(find, self._segments)

    def _find_aborted(self, piece: LogSlice, offset: int, end_offset: int) -> list[AbortedTransaction]:
        index = segment_index(self._base_offsets, piece.base_offset)
        indexed = [segment for segment in self._segments[index:] if segment.aborted.may_have_entries]
        if not indexed:
            return []
        bound = end_offset
        if index + 1 < len(self._segments):
            bound = min(bound, self._base_offsets[index + 1])
        after = self._segments[index].offset_after(piece.position + piece.size_bytes)
        if after is not None:
            bound = min(bound, after)
        found: list[AbortedTransaction] = []
        for segment in indexed:
            aborted, is_complete = segment.collect_aborted(offset, bound)
            found += aborted
            if is_complete:
                break
        return found
