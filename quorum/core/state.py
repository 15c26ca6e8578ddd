"""The working state of one replica's core, and the few operations that every handler uses on it.

Only :mod:`.transitions` assigns ``role`` and ``election``; only :mod:`.fetch` moves ``high_watermark``, and
:mod:`.download` when a snapshot takes the place of the log; only :mod:`.reconfig` changes ``voters``; every
effect goes through :meth:`CoreState.emit`. Randomness comes from the generator that was passed in.
"""

from __future__ import annotations

from typing import Final, Protocol

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Effect, Send
from pykraft.quorum.core.log_shape import LogShape, SnapshotId
from pykraft.quorum.core.messages import BeginQuorumEpochRequest, FetchRequest, FetchSnapshotRequest, Request
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState, Follower, Leader, Role
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address

_BACKOFF_BASE_MS = 50


class RandomSource(Protocol):
    """The part of :class:`random.Random` that the core needs."""

    def randrange(self, stop: int, /) -> int: ...


MOST_AHEAD: Final = 1 << 20


class EpochAllowance:
    """How far our epoch may rise because of peers (:mod:`.plausibility`)."""

    __slots__ = ("_since_ms", "left")

    def __init__(self, now_ms: int) -> None:
        self.left = MOST_AHEAD
        self._since_ms = now_ms

    def refill(self, now_ms: int, *, has_leader: bool) -> None:
        """One epoch a millisecond. Only a replica without a leader accumulates more than it begins with."""
        self.left += now_ms - self._since_ms
        self._since_ms = now_ms
        if has_leader:
            self.left = min(self.left, MOST_AHEAD)


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched; it outlives the leader that sends it.

    ``position``: bytes fetched so far. ``size_bytes`` and ``checksum`` of the whole file, None until known.
    ``is_checking``: all are fetched and are being made durable. ``attempt`` distinguishes one download from
    the next.
    """

    snapshot_id: SnapshotId
    attempt: int
    position: int = 0
    size_bytes: int | None = None
    checksum: int | None = None
    is_checking: bool = False


class CoreState:
    """Everything a replica knows.

    ``voters`` is the newest set of ``history``. ``local_address``: our address, None for a replica that
    serves no requests. ``in_flight``: the replica asked under each correlation id, in this role.
    ``snapshot``: the newest that is durable here; the log starts at its end or before. ``downloads`` counts
    those begun. ``recovery``: set while we may lack what we acknowledged. ``losses``: how often that has
    happened.
    """

    __slots__ = (
        "cluster_id",
        "config",
        "download",
        "downloads",
        "effects",
        "election",
        "epoch_allowance",
        "high_watermark",
        "history",
        "in_flight",
        "is_voter",
        "local",
        "local_address",
        "log",
        "losses",
        "next_correlation",
        "recovery",
        "rng",
        "role",
        "shutting_down",
        "snapshot",
        "voters",
    )

    def __init__(
        self,
        config: QuorumConfig,
        cluster_id: str,
        local: ReplicaKey,
        history: VoterHistory,
        rng: RandomSource,
        election: ElectionState,
        log: LogShape,
        role: Role,
        snapshot: SnapshotId | None,
        local_address: Address | None,
        epoch_allowance: EpochAllowance,
        recovery: Recovery | None,
        losses: int,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.local = local
        self.local_address = local_address
        self.history = history
        self.voters = history.current
        self.is_voter = self.voters.is_voter(local)
        self.rng = rng
        self.election = election
        self.log = log
        self.role = role
        self.epoch_allowance = epoch_allowance
        self.snapshot = snapshot
        self.high_watermark = 0 if snapshot is None else snapshot.end_offset
        self.in_flight: dict[int, ReplicaKey] = {}
        self.next_correlation = 0
        self.download: Download | None = None
        self.downloads = 0
        self.recovery = recovery
        self.losses = losses
        self.shutting_down = False
        self.effects: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send_to_voter(self, node_id: int, request: Request) -> int:
        """Send ``request`` to a voter; the answer counts only while the current role lasts."""
        voter = self.voters.get(node_id)
        assert voter is not None, f"{node_id} is not a voter"
        return self.send(voter.key, voter.address, request)

    def send(self, to: ReplicaKey, address: Address, request: Request) -> int:
        """The same for any replica."""
        correlation_id = self.next_correlation
        self.next_correlation = correlation_id + 1
        self.in_flight[correlation_id] = to
        timeout_ms = self.config.request_timeout_ms
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            timeout_ms = self.config.fetch_request_timeout_ms
        elif isinstance(request, BeginQuorumEpochRequest):
            timeout_ms = self.config.begin_request_timeout_ms
        self.effects.append(Send(to.id, correlation_id, request, timeout_ms, address))
        return correlation_id

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader to name to others: a resigned leader is none."""
        role = self.role
        if isinstance(role, Leader):
            return self.local.id
        return role.leader_id if isinstance(role, Follower) else None

    @property
    def leader_address(self) -> Address | None:
        """That leader's address. The address in its own messages takes precedence over the voter set."""
        role = self.role
        if isinstance(role, Leader) and self.local_address is not None:
            return self.local_address
        if isinstance(role, Follower):
            return role.leader_address
        voter = None if self.leader_id is None else self.voters.get(self.leader_id)
        return None if voter is None else voter.address

    @property
    def leader_key(self) -> ReplicaKey | None:
        """That leader's key; without a directory id if it is not in our voter set."""
        leader_id = self.leader_id
        if leader_id is None or leader_id == self.local.id:
            return None if leader_id is None else self.local
        voter = self.voters.get(leader_id)
        return ReplicaKey(leader_id) if voter is None else voter.key

    @property
    def takes_part(self) -> bool:
        """Whether we vote and count: a voter that has lost nothing of what it acknowledged."""
        return self.is_voter and self.recovery is None

    @property
    def may_be_candidate(self) -> bool:
        """A voter; or a replica that the newest set removes, while that set is not known to be committed.

        It may be the only replica that holds the record which removes it: without it no candidate could win,
        and the record could neither be committed nor replaced (Raft thesis, 4.2.2). It does not count itself.
        A recovering replica never starts an election.
        """
        if self.recovery is not None:
            return False
        return self.is_voter or self.history.names_since(self.local, self.high_watermark)

    def own_vote(self) -> set[int]:
        """The votes a poll begins with: a replica counts itself only if it votes."""
        return {self.local.id} if self.is_voter else set()

    def voter_key(self, node_id: int) -> ReplicaKey:
        voter = self.voters.get(node_id)
        assert voter is not None, f"{node_id} is not a voter"
        return voter.key

    def other_voters(self) -> tuple[int, ...]:
        return tuple(node_id for node_id in self.voters.ids if node_id != self.local.id)

    def random_election_timeout_ms(self) -> int:
        """One to two election timeouts."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms)

    def random_fetch_timeout_ms(self) -> int:
        """The fetch timeout and up to a tenth of it."""
        timeout_ms = self.config.fetch_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms // 10 + 1)

    def random_backoff_ms(self, retries: int) -> int:
        """Binary exponential back-off after the ``retries``-th lost election, at least 1 ms."""
        bound_ms = min(self.config.election_backoff_max_ms, _BACKOFF_BASE_MS << min(retries, 16))
        return 1 + self.rng.randrange(bound_ms)
