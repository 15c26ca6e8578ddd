"""The working state of one replica's core, and the few verbs every handler uses on it.

Only :mod:`.transitions` assigns ``role`` and ``election``; only :mod:`.fetch` moves ``high_watermark``; every
effect goes through :meth:`CoreState.emit`. Randomness comes from the generator that was passed in.
"""

from __future__ import annotations

from typing import Protocol

from pykraft.quorum.config import QuorumConfig
from pykraft.quorum.effects import Effect, Send
from pykraft.quorum.log_shape import LogShape
from pykraft.quorum.messages import BeginQuorumEpochRequest, FetchRequest, Request
from pykraft.quorum.roles import ElectionState, Follower, Leader, Role
from pykraft.quorum.voters import ReplicaKey, VoterSet

_BACKOFF_BASE_MS = 50


class RandomSource(Protocol):
    """The part of :class:`random.Random` that the core needs."""

    def randrange(self, stop: int, /) -> int: ...


class CoreState:
    """Everything a replica knows. ``in_flight``: the voter asked under each correlation id, in this role."""

    __slots__ = (
        "cluster_id",
        "config",
        "effects",
        "election",
        "high_watermark",
        "in_flight",
        "is_voter",
        "local",
        "log",
        "next_correlation",
        "rng",
        "role",
        "shutting_down",
        "voters",
    )

    def __init__(
        self,
        config: QuorumConfig,
        cluster_id: str,
        local: ReplicaKey,
        voters: VoterSet,
        rng: RandomSource,
        election: ElectionState,
        log: LogShape,
        role: Role,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.local = local
        self.voters = voters
        self.is_voter = voters.is_voter(local)
        self.rng = rng
        self.election = election
        self.log = log
        self.role = role
        self.high_watermark = 0
        self.in_flight: dict[int, int] = {}
        self.next_correlation = 0
        self.shutting_down = False
        self.effects: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: int, request: Request) -> int:
        """Send ``request`` to voter ``to``; the answer counts only while the present role lasts."""
        correlation_id = self.next_correlation
        self.next_correlation = correlation_id + 1
        self.in_flight[correlation_id] = to
        timeout_ms = self.config.request_timeout_ms
        if isinstance(request, FetchRequest):
            timeout_ms = self.config.fetch_request_timeout_ms
        elif isinstance(request, BeginQuorumEpochRequest):
            timeout_ms = self.config.begin_request_timeout_ms
        self.effects.append(Send(to, correlation_id, request, timeout_ms))
        return correlation_id

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader that may be told to others: a resigned leader is not one."""
        role = self.role
        if isinstance(role, Leader):
            return self.local.id
        return role.leader_id if isinstance(role, Follower) else None

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
