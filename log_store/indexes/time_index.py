"""The sparse time index of one segment: largest timestamp so far → last offset of the batch that holds it.

Entries are Kafka's: timestamp (int64) and relative offset (int32), big endian. An entry (t, o) says that no
record up to the batch of ``o`` is later than ``t``. The last entry of a sealed segment is its largest
timestamp. In memory only while the segment grows.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from pykraft.log_store.indexes.index_file import IndexFile
from pykraft.runtime.disk import Disk

_ENTRY = struct.Struct(">qi")
TIME_ENTRY_BYTES = _ENTRY.size


class TimeIndex:
    """Timestamps rise strictly; offsets never fall."""

    __slots__ = ("_entries", "base_offset", "storage")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.storage = IndexFile(disk, path, _ENTRY.size)
        self._entries: list[tuple[int, int]] | None = None  # (timestamp, relative offset); None while sealed

    def load(self) -> None:
        """Read the entries into memory up to the first that does not rise."""
        entries: list[tuple[int, int]] = []
        for timestamp_ms, relative in _ENTRY.iter_unpack(self.storage.read_all()):
            if entries and (timestamp_ms <= entries[-1][0] or relative < entries[-1][1]):
                break
            entries.append((timestamp_ms, relative))
        self._entries = entries
        self.storage.truncate(len(entries))

    def start_empty(self) -> None:
        """Start over with an empty file."""
        self._entries = []
        self.storage.truncate(0)

    def _loaded(self) -> list[tuple[int, int]]:
        if self._entries is None:
            self.load()
        assert self._entries is not None
        return self._entries

    @property
    def count(self) -> int:
        return self.storage.count if self._entries is None else len(self._entries)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp is later than all before (and there is one)."""
        entries = self._loaded()
        if timestamp_ms < 0 or (entries and timestamp_ms <= entries[-1][0]):
            return
        relative = offset - self.base_offset
        entries.append((timestamp_ms, relative))
        self.storage.append(_ENTRY.pack(timestamp_ms, relative))

    def lookup(self, timestamp_ms: int) -> int:
        """Offset of the entry with the largest timestamp ≤ ``timestamp_ms``; the base offset if none."""
        entry = self.lookup_entry(timestamp_ms)
        return self.base_offset if entry is None else entry[1]

    def lookup_entry(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of that entry."""
        if self._entries is not None:
            index = bisect_right(self._entries, timestamp_ms, key=lambda entry: entry[0])
            entry = self._entries[index - 1] if index else None
        else:
            index = bisect_right(range(self.storage.count), timestamp_ms, key=lambda at: self._stored(at)[0])
            entry = self._stored(index - 1) if index else None
        return None if entry is None else (entry[0], entry[1] + self.base_offset)

    @property
    def last_entry(self) -> tuple[int, int] | None:
        """(largest timestamp, offset) of the newest entry."""
        if self.count == 0:
            return None
        timestamp_ms, relative = self._stored(-1) if self._entries is None else self._entries[-1]
        return timestamp_ms, relative + self.base_offset

    def truncate_to_offset(self, offset: int) -> None:
        """Drop entries whose offset is ``offset`` or above."""
        entries = self._loaded()
        count = bisect_right(entries, offset - self.base_offset - 1, key=lambda entry: entry[1])
        del entries[count:]
        self.storage.truncate(count)

    def adopt(self, built: TimeIndex, first_kept: int) -> None:
        """As :meth:`.offset_index.OffsetIndex.adopt`."""
        added: list[tuple[int, int]] = []
        if self._entries is not None:
            added = self._entries[first_kept:]
            self._entries = built._loaded()
        self.storage.replace_by(built.storage)
        for timestamp_ms, relative in added:
            self.maybe_append(timestamp_ms, relative + self.base_offset)

    def seal(self) -> None:
        """Write what is pending (the file exists afterwards, if only empty) and leave memory."""
        self.storage.complete()
        self._entries = None

    def is_sane(self) -> bool:
        """A cheap check of a sealed index: there, whole, and its ends in order."""
        if not self.storage.exists() or not self.storage.is_whole:
            return False
        if self.count == 0:
            return True
        first, last = self._stored(0), self._stored(-1)
        return 0 <= first[0] <= last[0] and 0 <= first[1] <= last[1]

    def _stored(self, index: int) -> tuple[int, int]:
        entry: tuple[int, int] = _ENTRY.unpack(self.storage.entry(index % self.storage.count))
        return entry
