"""The six roles of a replica, each holding only the state that means something while it is held.

Leaving a role drops its state, and with it every request in flight: an answer to a request sent in
another role is dropped. Deadlines are absolute, in milliseconds of the monotonic clock. Nothing here
decides; the handlers do (vote, begin_end, fetch) and :mod:`.transitions` moves between roles.
A replica that is not in the voter set (an observer) is only ever Unattached or Follower; but one whose
removal from the set is not committed yet may still lead, stand and resign.
"""

from __future__ import annotations

from dataclasses import field

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import VoterChangeRequest
from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address

OBSERVER_SESSION_MS = 300_000
MOST_OBSERVERS = 1000
"""More than a cluster has. A peer that fetches under ever new keys does not make its leader grow."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The quorum-state file, which survives a crash: the epoch, its leader if known, our vote if cast."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Unattached:
    """Knows an epoch but no leader. A voter waits for one, then starts an election; an observer asks for it.

    ``epoch_has_ended``: the leader has resigned, so no pre-vote is needed.
    """

    election_deadline_ms: int
    fetch_correlation: int | None = None
    next_fetch_ms: int = 0
    epoch_has_ended: bool = False


@dataclass(slots=True)
class Poll:
    """The common part of the two roles that ask for votes.

    ``retry_at_ms``: voters to ask (again), and when. ``refused``: those that refused or cannot be reached.
    ``lost``: they leave no majority, or time ran out; then ``deadline_ms`` is the end of the back-off after
    which all are asked again. ``retries``: polls lost so far in a row.
    """

    deadline_ms: int
    retries: int
    granted: set[int]
    refused: set[int] = field(default_factory=set)
    retry_at_ms: dict[int, int] = field(default_factory=dict)
    lost: bool = False


@dataclass(slots=True)
class Prospective(Poll):
    """Hears no leader and asks, before it starts an election, whether it could win (KIP-996).

    Its epoch, vote and known leader stay as they are: a pre-vote changes nothing.
    ``leader_address``: that leader's last known address. ``search_correlation``: the open question for the
    leader, to a node that is not asked for a pre-vote.
    """

    leader_address: Address | None = None
    search_correlation: int | None = None


class Candidate(Poll):
    """Stands for election in its epoch, having voted for itself."""

    __slots__ = ()


@dataclass(slots=True)
class ParkedFetch:
    """A fetch without news, waiting at the leader for records, a commit, or its deadline."""

    token: int
    replica: ReplicaKey
    fetch_offset: int
    high_watermark: int
    max_bytes: int
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """A requested change of the voter set whose caller waits at this leader.

    ``waits_for``: what has kept it so far, for people. ``is_reached``: the new voter has answered at its
    address (only an addition asks it, at ``probe_at_ms``). ``offset``: of its record, None until that is
    appended.
    """

    token: int
    request: VoterChangeRequest
    deadline_ms: int
    waits_for: str = ""
    probe_at_ms: int | None = None
    probe_correlation: int | None = None
    is_reached: bool = False
    offset: int | None = None


@dataclass(slots=True)
class Leader:
    """Leads its epoch. ``epoch_start_offset`` is the offset of its LeaderChange record.

    ``progress``: every other voter by id; ``observers`` by key. ``begin_at_ms``: voters that have yet to hear
    of this leader, and when to tell them (again). ``changes``: of the voter set, in the order they came.
    """

    epoch_start_offset: int
    elected_at_ms: int
    progress: dict[int, FetchProgress]
    begin_at_ms: dict[int, int]
    observers: dict[ReplicaKey, FetchProgress] = field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    changes: list[VoterChange] = field(default_factory=list)

    def forget_silent_observers(self, now_ms: int) -> None:
        """A broker returns under its old key, or never: old observers are forgotten."""
        oldest_ms = now_ms - OBSERVER_SESSION_MS
        self.observers = {k: p for k, p in self.observers.items() if p.last_fetch_ms > oldest_ms}
        if len(self.observers) >= MOST_OBSERVERS:
            del self.observers[min(self.observers.values(), key=lambda it: it.last_fetch_ms).key]


@dataclass(slots=True)
class Follower:
    """Follows the leader of its epoch: one fetch at a time.

    ``fetch_timeout_ms``: the configured one and a random part, drawn for each leader, so that followers which
    lose their leader at the same moment do not all start an election at the same moment.
    ``leader_high_watermark``: as last heard; our own trails it until the records are flushed here.
    ``last_contact_ms``: when the leader itself was last heard in this epoch, None if it was not.
    ``epoch_has_ended``: it has resigned; ``fetch_deadline_ms`` is then when it is our turn to start an
    election. ``leader_address``: as it said itself, otherwise as in the voter set; None if unknown.
    ``change_at_ms``: when to ask it (again) to correct our own entry in the voter set. ``snapshot_id``: what
    to fetch in place of records that the leader no longer holds.
    """

    leader_id: int
    fetch_timeout_ms: int
    fetch_deadline_ms: int
    fetch_correlation: int | None = None
    next_fetch_ms: int = 0
    leader_high_watermark: int = 0
    last_contact_ms: int | None = None
    epoch_has_ended: bool = False
    leader_address: Address | None = None
    change_correlation: int | None = None
    change_at_ms: int = 0
    snapshot_id: SnapshotId | None = None

    def record_contact(self, now_ms: int) -> None:
        """The leader itself answered; irrelevant once it has resigned."""
        if not self.epoch_has_ended:
            self.fetch_deadline_ms = now_ms + self.fetch_timeout_ms
            self.last_contact_ms = now_ms


@dataclass(slots=True)
class Resigned:
    """Was leader of this epoch and is no longer: it lost its majority, is stopping, or has restarted.

    It must not lead this epoch again (its unflushed records are lost and their offsets must not be given to
    others in the same epoch) nor vote in it. ``end_at_ms``: voters to tell, and when.
    """

    election_deadline_ms: int
    preferred_successors: tuple[ReplicaKey, ...]
    end_at_ms: dict[int, int] = field(default_factory=dict)


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned
