"""How far each replica is, as its leader knows it, and the majority arithmetic on that.

A fetch offset is a flushed log end (the fetch is the acknowledgement), so an end offset here is durable on
its replica. Within one leader epoch it never falls, unless the replica reports that it has lost something
(:mod:`.recovery`): a fetch that was validated against the leader's log cannot be truncated by the same
leader, so a smaller one is only a late or repeated message.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.voters import Announcement, ReplicaKey

LATEST_MS = 60_000
"""No fetch arrives later than this."""


@dataclass(slots=True)
class FetchProgress:
    """One replica as seen by the leader. Times are monotonic milliseconds; ``end_offset`` 0 until it fetched.

    ``last_caught_up_ms``: the latest time at which it held all that the leader held then.
    ``losses``: how often it has said that it had lost what it acknowledged; last said at ``losses_ms``.
    ``is_recovering``: it has not got that back. ``announced``: with its latest fetch.
    """

    key: ReplicaKey
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    leader_end_at_last_fetch: int = 0
    losses: int = 0
    losses_ms: int = 0
    is_recovering: bool = False
    announced: Announcement | None = None

    def record_contact(self, now_ms: int) -> None:
        """It fetched in this epoch, whether or not its log matches: it knows its leader."""
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)

    def is_believed(self, losses: int, now_ms: int, *, is_recovering: bool) -> bool:
        """Whether a fetch acknowledges anything: not while it recovers, nor one of before its last loss.

        The first report of a loss withdraws everything that it acknowledged before. A report that it does not
        repeat within :data:`LATEST_MS`, while it reports fewer losses, was not its own.
        """
        was_forged = losses < self.losses and now_ms - self.losses_ms > LATEST_MS
        if losses > self.losses or was_forged:
            self.losses, self.end_offset, self.leader_end_at_last_fetch = losses, 0, 0
        if losses == self.losses:
            self.losses_ms, self.is_recovering = now_ms, is_recovering
        return losses == self.losses and not is_recovering

    def record_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It holds, flushed, the leader's records below ``fetch_offset``."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = max(self.end_offset, fetch_offset)
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)


def majority_reached(values: Iterable[int], majority: int) -> int:
    """The largest value that at least ``majority`` of ``values`` have reached."""
    return sorted(values, reverse=True)[majority - 1]
