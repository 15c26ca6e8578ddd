"""The quorum's timeouts, in milliseconds, with Kafka's defaults (``controller.quorum.*``).

They are compared with the monotonic clock that the driver passes in; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Timeouts and limits of one replica of the metadata quorum.

    ``election_timeout_ms``: an unattached voter waits this long, plus up to as much again at random.
    ``fetch_timeout_ms``: a follower without a good answer from its leader for this long stands for
    election; a leader without fetches from a majority for 1.5 times this long resigns.
    ``election_backoff_max_ms``: bound of the random wait after a lost election.
    ``request_timeout_ms``: deadline of every call, at most. ``retry_backoff_ms``: wait after a failed call.
    ``fetch_max_wait_ms``: how long the leader may hold a fetch that has nothing to say.
    ``append_linger_ms``: kept for Kafka's sake; group commit comes from the flush in flight.
    """

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    append_linger_ms: int = 0
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        for name in ("election_timeout_ms", "fetch_timeout_ms", "election_backoff_max_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may really be held: short enough that silence is not taken for a dead leader."""
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 3, self.request_timeout_ms // 3)

    @property
    def fetch_request_timeout_ms(self) -> int:
        """A fetch unanswered so long is lost; it is repeated before its follower gives up on the leader."""
        return min(self.request_timeout_ms, max(self.fetch_timeout_ms // 2, 1))

    @property
    def begin_request_timeout_ms(self) -> int:
        """A leader's announcement is repeated before the voter that missed it stands for election."""
        return min(self.request_timeout_ms, max(self.election_timeout_ms // 2, 1))

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2
