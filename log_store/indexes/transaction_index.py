"""The transaction index of one segment: the aborted transactions whose markers are in it.

Readers of committed records need to know which data to leave out. Entries are Kafka's 34 bytes, big endian,
in the order of the markers: version (int16, 0), producer id, first offset, last offset (of the marker) and
last stable offset (int64 each). The file exists only if there are entries. It holds nothing that cannot be
derived from the log: after an unclean stop what was not flushed is written again
(:meth:`.Log.restore_aborted`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

from pykraft.log_store.indexes.index_file import IndexFile
from pykraft.runtime.disk import Disk, UnreadableError

_ENTRY = struct.Struct(">hqqqq")
TXN_ENTRY_BYTES = _ENTRY.size
_VERSION = 0
_ENTRIES_PER_READ = 120


class AbortedTransaction(NamedTuple):
    """An entry. ``last_offset``: of the marker. ``last_stable_offset``: where the oldest other transaction
    began that was open then, else after the marker; nothing before it is undecided.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a file: entries in the order of their markers."""
    return b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)


class BadEntryError(Exception):
    """The file is no transaction index of its segment."""


def decode_index(data: bytes, base_offset: int, path: str) -> list[AbortedTransaction]:
    """Decode a file or a part; ``base_offset``: the segment's. :class:`BadEntryError` for nonsense."""
    return [AbortedTransaction(*fields) for fields in _iter_fields(data, base_offset, path)]


def _iter_fields(data: bytes, base_offset: int, path: str) -> Iterator[tuple[int, int, int, int]]:
    """As :func:`decode_index`, without making a value of each: a reader may have to pass very many."""
    if len(data) % TXN_ENTRY_BYTES:
        raise BadEntryError(f"{path} does not hold whole entries")
    last = base_offset - 1
    for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
        if (
            version != _VERSION
            or last_offset <= last
            or not 0 <= first_offset < last_offset
            or not 0 <= stable_offset <= last_offset + 1
        ):
            one = AbortedTransaction(producer_id, first_offset, last_offset, stable_offset)
            raise BadEntryError(f"{path} holds an entry that makes no sense: {one}")
        last = last_offset
        yield producer_id, first_offset, last_offset, stable_offset


class TransactionIndex:
    """``base_offset``: of the segment."""

    __slots__ = ("_added", "_count", "base_offset", "is_bad", "storage")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.storage = IndexFile(disk, path, TXN_ENTRY_BYTES)
        #: An entry was found that makes no sense: to be built again.
        self.is_bad = False
        self._count: int | None = None  # not yet looked at
        self._added: list[AbortedTransaction] = []  # while it is bad

    @property
    def count(self) -> int:
        """How many entries there are. :class:`BadEntryError` if the last one is cut."""
        if self._count is None:
            if not self.storage.exists():
                self._count = 0
            elif not self.storage.is_whole:
                raise BadEntryError(f"{self.storage.path} does not hold whole entries")
            else:
                self._count = self.storage.count
        return self._count

    @property
    def known_count(self) -> int:
        """As :attr:`count`; -1 if that was not looked at yet."""
        return -1 if self._count is None else self._count

    @property
    def may_have_entries(self) -> bool:
        return self._count is None or self._count > 0 or self.is_bad

    def keep_common(
        self, transactions: Sequence[AbortedTransaction], offset: int
    ) -> Sequence[AbortedTransaction]:
        """Among entries whose markers are at or above ``offset``, keep those with which ``transactions``
        begins; returns the rest of them, which is to be added. Nothing if the index has to be built anyway.
        """
        kept = 0
        try:
            if not self.count or self.is_bad:
                return () if self.is_bad else transactions
            first = bisect_left(range(self.count), offset, key=self._last_offset)
            for transaction in self.entries(first):
                if kept == len(transactions) or transaction != transactions[kept]:
                    self.truncate_to_offset(transaction.last_offset)
                    break
                kept += 1
        except (BadEntryError, UnreadableError):
            self.is_bad = True
            return ()
        return transactions[kept:]

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction; its marker is the newest in the segment."""
        try:
            count = self.count
        except BadEntryError:
            self.is_bad = True
        if self.is_bad:
            self._added.append(transaction)
        self.storage.append(encode_index([transaction]))
        self.storage.write_pending()
        if not self.is_bad:
            self._count = count + 1

    def clear(self) -> None:
        """Forget all entries; the file, if there is one, is removed."""
        if self.storage.exists():
            self.storage.remove()
        self._count, self.is_bad, self._added = 0, False, []

    def adopt(self, built: TransactionIndex) -> None:
        """Take over another index of the segment, and keep what was added after its last entry."""
        newest = max((transaction.last_offset for transaction in built.entries()), default=-1)
        added = [transaction for transaction in self._added if transaction.last_offset > newest]
        if built.count:
            self.storage.replace_by(built.storage)
            self._count, self.is_bad, self._added = built.count, False, []
        else:
            self.clear()
        for transaction in added:
            self.append(transaction)

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries whose markers are at ``offset`` or above."""
        self._added = [one for one in self._added if one.last_offset < offset]
        if self.is_bad:
            return
        try:
            if not self.count:
                return
            kept = bisect_left(range(self.count), offset, key=self._last_offset)
        except (BadEntryError, UnreadableError):
            self.is_bad = True
            return
        if kept == 0:
            self.clear()
        elif kept < self.count:
            self.storage.truncate(kept)
            self._count = kept

    def recover(self, offset: int) -> bool:
        """After an unclean stop: keep the entries whose markers are below ``offset``, which were flushed.

        False, and nothing is kept, if one of them makes no sense.
        """
        if not self.storage.exists():
            self._count = 0
            return True
        self._count, kept = self.storage.count, 0
        try:
            for transaction in self.entries():
                if transaction.last_offset >= offset:
                    break
                kept += 1
            is_whole = True
        except (BadEntryError, UnreadableError):
            is_whole = False
        if not is_whole or kept == 0:
            self.clear()
        else:
            self.storage.truncate(kept)
            self._count = kept
        return is_whole

    def collect(self, offset: int, bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with data or a marker in ``[offset, bound)`` whose markers are at or above
        ``offset``; and whether no later segment can have another one.
        """
        found: list[AbortedTransaction] = []
        if self.is_bad:
            raise BadEntryError(f"{self.storage.path} is built again")
        if not self.count:
            return found, False
        first = bisect_left(range(self.count), offset, key=self._last_offset)
        for fields in self._iter_fields(first):
            _, first_offset, _, stable_offset = fields
            if first_offset < bound:
                found.append(AbortedTransaction(*fields))
            if stable_offset >= bound:
                return found, True
        return found, False

    def entries(self, first: int = 0) -> Iterator[AbortedTransaction]:
        """All from the ``first`` on. :class:`BadEntryError` where one makes no sense."""
        return starmap(AbortedTransaction, self._iter_fields(first))

    def _iter_fields(self, first: int) -> Iterator[tuple[int, int, int, int]]:
        count, least = self.count, self.base_offset
        for start in range(first, count, _ENTRIES_PER_READ):
            wanted = min(_ENTRIES_PER_READ, count - start) * TXN_ENTRY_BYTES
            data = self.storage.file.pread(start * TXN_ENTRY_BYTES, wanted)
            if len(data) < wanted:
                raise BadEntryError(f"{self.storage.path} has become shorter")
            last_offset = least - 1
            for fields in _iter_fields(data, least, self.storage.path):
                last_offset = fields[2]
                yield fields
            least = last_offset + 1

    def _last_offset(self, index: int) -> int:
        (entry,) = decode_index(self.storage.entry(index), self.base_offset, self.storage.path)
        return entry.last_offset
