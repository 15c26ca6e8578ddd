"""The sparse offset index of one segment: offset of a batch's last record → position of that batch.

Entries are Kafka's: relative offset (int32) and position (int32), big endian, both rising. While the segment
grows, its entries also live in two arrays; a sealed segment is searched in the file, so that thousands of
old segments cost no memory and are read only on demand.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from pykraft.log_store.indexes.index_file import IndexFile
from pykraft.runtime.disk import Disk

_ENTRY = struct.Struct(">ii")
OFFSET_ENTRY_BYTES = _ENTRY.size


class OffsetIndex:
    """``index_bytes`` of a segment's settings bounds the entries; a full index makes the segment roll."""

    __slots__ = ("_offsets", "_positions", "base_offset", "storage")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.storage = IndexFile(disk, path, _ENTRY.size)
        # Both None while sealed. The arrays hold the entries, pending ones included.
        self._offsets: array[int] | None = None
        self._positions: array[int] | None = None

    def load(self) -> None:
        """Read the entries into memory up to the first that does not rise."""
        numbers = array("i", self.storage.read_all())
        if sys.byteorder == "little":
            numbers.byteswap()
        offsets, positions = numbers[0::2], numbers[1::2]
        count = _rising_entries(offsets, positions)
        self._offsets, self._positions = offsets[:count], positions[:count]
        self.storage.truncate(count)

    def start_empty(self) -> None:
        """Start over with an empty file."""
        self._offsets, self._positions = array("i"), array("i")
        self.storage.truncate(0)

    @property
    def _arrays(self) -> tuple[array[int], array[int]]:
        if self._offsets is None or self._positions is None:
            self.load()
        assert self._offsets is not None and self._positions is not None
        return self._offsets, self._positions

    @property
    def count(self) -> int:
        return self.storage.count if self._offsets is None else len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        offsets, positions = self._arrays
        relative = last_offset - self.base_offset
        offsets.append(relative)
        positions.append(position)
        self.storage.append(_ENTRY.pack(relative, position))

    def lookup(self, offset: int) -> int:
        """Position of the batch with the largest indexed last offset ≤ ``offset``; 0 if there is none."""
        entry = self.lookup_entry(offset)
        return 0 if entry is None else entry[1]

    def lookup_entry(self, offset: int) -> tuple[int, int] | None:
        """(last offset, position) of that batch."""
        relative = offset - self.base_offset
        if self._offsets is not None and self._positions is not None:
            index = bisect_right(self._offsets, relative)
            if not index:
                return None
            return self._offsets[index - 1] + self.base_offset, self._positions[index - 1]
        index = bisect_right(range(self.storage.count), relative, key=lambda at: self._stored(at)[0])
        if not index:
            return None
        relative, position = self._stored(index - 1)
        return relative + self.base_offset, position

    def lookup_position(self, position: int) -> tuple[int, int] | None:
        """(last offset, position) of the newest batch that is indexed at ``position`` or before."""
        if self._positions is not None and self._offsets is not None:
            index = bisect_right(self._positions, position)
            if not index:
                return None
            return self._offsets[index - 1] + self.base_offset, self._positions[index - 1]
        index = bisect_right(range(self.storage.count), position, key=self._stored_position)
        if not index:
            return None
        relative, found = self._stored(index - 1)
        return relative + self.base_offset, found

    def first_entry_from(self, position: int) -> tuple[int, int] | None:
        """(last offset, position) of the first batch that is indexed at ``position`` or after."""
        if self._positions is not None and self._offsets is not None:
            index = bisect_left(self._positions, position)
            if index == len(self._positions):
                return None
            return self._offsets[index] + self.base_offset, self._positions[index]
        index = bisect_left(range(self.storage.count), position, key=self._stored_position)
        if index == self.storage.count:
            return None
        relative, found = self._stored(index)
        return relative + self.base_offset, found

    @property
    def last_entry(self) -> tuple[int, int] | None:
        """(last offset, position) of the newest entry."""
        if self.count == 0:
            return None
        relative, position = self._stored(-1) if self._offsets is None else self._newest()
        return relative + self.base_offset, position

    def truncate_to_offset(self, offset: int) -> None:
        """Drop entries whose offset is ``offset`` or above."""
        offsets, positions = self._arrays
        count = bisect_right(offsets, offset - self.base_offset - 1)
        del offsets[count:], positions[count:]
        self.storage.truncate(count)

    def adopt(self, built: OffsetIndex, first_kept: int) -> None:
        """Take over a segment's other index; own entries from ``first_kept`` on stay, unless it is sealed."""
        added: list[tuple[int, int]] = []
        if self._offsets is not None and self._positions is not None:
            added = list(zip(self._offsets[first_kept:], self._positions[first_kept:], strict=True))
            self._offsets, self._positions = built._arrays
        self.storage.replace_by(built.storage)
        for relative, position in added:
            self.append(relative + self.base_offset, position)

    def seal(self) -> None:
        """Write the pending entries (the file exists afterwards, even if empty) and free the memory."""
        self.storage.complete()
        self._offsets = self._positions = None

    def is_sane(self, segment_bytes: int) -> bool:
        """A cheap check of a sealed index: there, whole, and its ends in order and within the segment."""
        if not self.storage.exists() or not self.storage.is_whole:
            return False
        if self.count == 0:
            return True
        first, last = self._stored(0), self._stored(-1)
        return 0 <= first[0] <= last[0] and 0 <= first[1] <= last[1] < segment_bytes

    def _newest(self) -> tuple[int, int]:
        offsets, positions = self._arrays
        return offsets[-1], positions[-1]

    def _stored(self, index: int) -> tuple[int, int]:
        entry: tuple[int, int] = _ENTRY.unpack(self.storage.entry(index % self.storage.count))
        return entry

    def _stored_position(self, index: int) -> int:
        return self._stored(index)[1]


def _rising_entries(offsets: array[int], positions: array[int]) -> int:
    """How many entries from the start rise strictly in both columns (zeros left by a crash do not)."""
    last_offset, last_position = -1, 0  # the batch at position 0 is never indexed
    for index, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
        if offset <= last_offset or position <= last_position:
            return index
        last_offset, last_position = offset, position
    return len(offsets)
