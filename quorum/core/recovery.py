"""The restrictions of a voter that may have lost acknowledged records, and their end.

Its log was truncated below the offset that it had flushed, and so perhaps acknowledged: a damaged disk, not a
power loss in the middle of a write (``quorum/flushed_mark`` tells the two apart). Raft's promise that every
elected leader holds everything committed depends on voters that remember: any majority that elects shares a
voter with any majority that acknowledged, and that voter refuses a candidate whose log lacks what it
acknowledged itself. A voter that has lost records must not be the shared one (Alagappan et al.,
"Protocol-Aware Recovery for Consensus-Based Storage", FAST 2018). So a recovering voter

* grants neither votes nor pre-votes, and starts no election: leaders are elected by majorities of intact
  voters;
* says in every fetch that it is recovering, and its leader counts nothing for it, not even what it
  acknowledged before: committed records are on the disks of a majority;
* is in any other respect an observer: it looks for the leader and fetches from it.

This state is on its disk before anything else happens, and outlives restarts. It ends, on disk first, when

* everything below the end of what it had flushed is flushed here again, fetched since; or
* a leader had nothing more for it: at that moment it held that leader's whole log.

Either is enough. Let r be a committed record that the voter had acknowledged, to the leader of epoch e. It
fetches from leaders of its own epoch on, which is e or later. A leader of e itself holds r, as it never cuts
its log. A leader of a later epoch was elected by a majority of voters that had lost nothing; one of them had
acknowledged r, too, so r was in that leader's log from its election on. What the voter fetches continues a
log that matches its leader's up to there. So once it reaches to the old end, or to the end of that log, it
contains r. (The second way is for a log that was flushed further than its leader's: the rest was never
committed.)

Nothing is lost while a majority is intact. Without one no leader is elected: committed records may be lost,
and only an operator can decide to continue without them (docs/quorum.md). A single voter never recovers
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.effects import EndRecovery

if TYPE_CHECKING:
    from pykraft.quorum.core.state import CoreState


@dataclass(frozen=True, slots=True)
class Recovery:
    """``end_offset`` (exclusive): of what had been flushed here before; None if that is not known."""

    end_offset: int | None


def handle_flushed(state: CoreState) -> None:
    """More of what was fetched is flushed, or is in a snapshot."""
    end_offset = None if state.recovery is None else state.recovery.end_offset
    if end_offset is not None and state.log.flushed_offset >= end_offset:
        _end(state)


def handle_caught_up(state: CoreState) -> None:
    """The leader had nothing beyond our log's end, which was flushed when we asked."""
    if state.recovery is not None:
        _end(state)


def _end(state: CoreState) -> None:
    state.recovery = None
    state.emit(EndRecovery(state.log.flushed_offset))
