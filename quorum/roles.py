"""The five roles of a replica, each holding only the state that means something while it is held.

Leaving a role drops its state, and with it every request in flight: an answer to a question asked in
another role finds nobody. Deadlines are absolute, in milliseconds of the monotonic clock. Nothing here
decides; the handlers do (vote, begin_end, fetch) and :mod:`.transitions` moves between roles.
A replica that is not in the voter set (an observer) is only ever Unattached or Follower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pykraft.quorum.progress import FetchProgress
from pykraft.quorum.voters import ReplicaKey

OBSERVER_SESSION_MS = 300_000


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What must survive a crash (the quorum-state file): the epoch, its leader if known, our vote if cast."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Unattached:
    """Knows an epoch but no leader. A voter waits to be told, then stands; an observer asks around."""

    election_deadline_ms: int
    fetch_correlation: int | None = None
    next_fetch_ms: int = 0


@dataclass(slots=True)
class Candidate:
    """Stands for election in its epoch, having voted for itself.

    ``retry_at_ms``: voters to ask (again), and when. ``refused``: those that said no or are out of reach.
    ``lost``: they leave no majority, or time ran out; then ``deadline_ms`` is the end of the back-off after
    which the next epoch is tried.
    """

    deadline_ms: int
    retries: int
    granted: set[int]
    refused: set[int] = field(default_factory=set)
    retry_at_ms: dict[int, int] = field(default_factory=dict)
    lost: bool = False


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that had nothing to bring, waiting at the leader for records, a commit, or its deadline."""

    token: int
    replica: ReplicaKey
    fetch_offset: int
    high_watermark: int
    max_bytes: int
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    """Leads its epoch. ``epoch_start_offset`` is the offset of its LeaderChange record.

    ``progress``: every other voter by id; ``observers`` by key. ``begin_at_ms``: voters that have yet to hear
    of this leader, and when to tell them (again).
    """

    epoch_start_offset: int
    elected_at_ms: int
    progress: dict[int, FetchProgress]
    begin_at_ms: dict[int, int]
    observers: dict[ReplicaKey, FetchProgress] = field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)

    def forget_silent_observers(self, now_ms: int) -> None:
        """A broker comes back under its old key, or never: nobody is remembered for ever."""
        oldest_ms = now_ms - OBSERVER_SESSION_MS
        self.observers = {k: p for k, p in self.observers.items() if p.last_fetch_ms > oldest_ms}


@dataclass(slots=True)
class Follower:
    """Follows the leader of its epoch: one fetch at a time.

    ``fetch_timeout_ms``: the configured one and a random bit, drawn anew for each leader, so that followers
    which lose their leader at the same moment do not all stand at the same moment.
    ``leader_high_watermark``: as last heard; our own trails it until the records are flushed here.
    """

    leader_id: int
    fetch_timeout_ms: int
    fetch_deadline_ms: int
    fetch_correlation: int | None = None
    next_fetch_ms: int = 0
    leader_high_watermark: int = 0


@dataclass(slots=True)
class Resigned:
    """Was leader of this epoch and is no longer: it lost its majority, is stopping, or has restarted.

    It must not lead this epoch again (its unflushed records are gone and their offsets must not be given
    to others in the same epoch) nor vote in it. ``end_at_ms``: voters to tell, and when.
    """

    election_deadline_ms: int
    preferred_successors: tuple[ReplicaKey, ...]
    end_at_ms: dict[int, int] = field(default_factory=dict)


Role = Unattached | Candidate | Leader | Follower | Resigned
