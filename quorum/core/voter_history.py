"""Which voter set is in force at which offset of the local log (KIP-853; Raft thesis, chapter 4).

A voter set counts as soon as its record is appended, committed or not, and no longer counts once the record
is truncated. So every set since the start of the log is kept, with the offset of its record. What comes
before the first of them is the base: read from a snapshot, from the checkpoint that formatting left, or given
by the configuration.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter

from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, VoterSet

BEFORE_THE_LOG = -1
_offset = itemgetter(0)


class VoterHistory:
    """``base`` is in force until the first of ``records``: (offset, voter set), in order.

    ``is_shared``: another replica can learn ``base`` from what is replicated; if not, the first leader of a
    dynamic quorum has to write it into the log.
    """

    __slots__ = ("_entries", "_is_shared")

    def __init__(
        self,
        base: VoterSet = NO_VOTERS,
        records: Iterable[tuple[int, VoterSet]] = (),
        *,
        is_shared: bool = True,
    ) -> None:
        self._entries: list[tuple[int, VoterSet]] = [(BEFORE_THE_LOG, base)]
        self._is_shared = is_shared
        for offset, voters in records:
            self.append(offset, voters)

    @property
    def current(self) -> VoterSet:
        """The newest set, which is the one that counts."""
        return self._entries[-1][1]

    @property
    def current_offset(self) -> int:
        """Offset of its record, -1 if it is the base."""
        return self._entries[-1][0]

    @property
    def records(self) -> tuple[tuple[int, VoterSet], ...]:
        """Every set in the log, with the offset of its record."""
        return tuple(self._entries[1:])

    @property
    def is_shared(self) -> bool:
        return self._is_shared or len(self._entries) > 1

    def at(self, end_offset: int) -> VoterSet:
        """The set in force where a log that ends at ``end_offset`` (exclusive) ends."""
        return self._entries[max(bisect_left(self._entries, end_offset, key=_offset) - 1, 0)][1]

    def shared_at(self, end_offset: int) -> VoterSet | None:
        """The same, for a snapshot: None if nothing that is replicated names the voters."""
        index = bisect_left(self._entries, end_offset, key=_offset) - 1
        return self._entries[index][1] if index > 0 or self._is_shared else None

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self.current_offset, f"voters at {offset} after those at {self.current_offset}"
        self._entries.append((offset, voters))

    def truncate(self, end_offset: int) -> None:
        """Drop every record at ``end_offset`` and above."""
        del self._entries[max(bisect_left(self._entries, end_offset, key=_offset), 1) :]

    def forget_before(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now, behind a snapshot that holds the set in force there."""
        first = bisect_right(self._entries, start_offset - 1, key=_offset) - 1
        if first > 0:
            self._entries[: first + 1] = [(BEFORE_THE_LOG, self._entries[first][1])]
            self._is_shared = True

    def replace(self, voters: VoterSet | None) -> None:
        """A snapshot has taken the place of the whole log, with this set in it, or with none."""
        if voters is None:
            self.truncate(0)
            return
        self._entries = [(BEFORE_THE_LOG, voters)]
        self._is_shared = True

    def names_since(self, key: ReplicaKey, end_offset: int) -> bool:
        """Whether ``key`` votes in the set in force at ``end_offset``, or in any of the later ones."""
        first = max(bisect_left(self._entries, end_offset, key=_offset) - 1, 0)
        return any(voters.is_voter(key) for _, voters in self._entries[first:])
