"""The quorum's timeouts, in milliseconds, and limits (``controller.quorum.*``).

They are compared with the monotonic clock that the driver passes in; nothing here reads a clock.
"""

from __future__ import annotations

from pykraft.configuration.settings import Settings, setting
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class QuorumConfig(Settings):
    """Timeouts and limits of one replica of the metadata quorum.

    ``election_timeout_ms``: an unattached voter waits this long, plus up to as much again at random.
    ``fetch_timeout_ms``: a follower without a successful answer from its leader for this long starts an
    election; a leader without fetches from a majority for 1.5 times this long resigns.
    ``election_backoff_max_ms``: bound of the random wait after a lost election.
    ``request_timeout_ms``: deadline of every call, at most. ``retry_backoff_ms``: wait after a failed call.
    ``fetch_max_wait_ms``: how long the leader may hold a fetch for which there is nothing new.
    ``fetch_snapshot_max_bytes``: size of the pieces in which a snapshot is fetched.
    ``max_retention_bytes`` (log and snapshots together), ``max_retention_ms``: beyond them the oldest part of
    the log that a snapshot covers may be deleted; -1 for no limit.
    ``auto_join``: a controller that is an observer asks to become a voter. ``bootstrap_servers``: where a
    replica asks for the leader besides the voters it knows.
    """

    election_timeout_ms: int = setting("controller.quorum.election.timeout.ms")
    fetch_timeout_ms: int = setting("controller.quorum.fetch.timeout.ms")
    election_backoff_max_ms: int = setting("controller.quorum.election.backoff.max.ms")
    request_timeout_ms: int = setting("controller.quorum.request.timeout.ms")
    retry_backoff_ms: int = setting("controller.quorum.retry.backoff.ms")
    fetch_max_bytes: int = setting("controller.quorum.fetch.max.bytes")
    fetch_snapshot_max_bytes: int = setting("controller.quorum.fetch.snapshot.max.bytes")
    max_retention_bytes: int = setting("metadata.max.retention.bytes")
    max_retention_ms: int = setting("metadata.max.retention.ms")
    auto_join: bool = setting("controller.quorum.auto.join.enable")
    fetch_max_wait_ms: int = 500
    bootstrap_servers: tuple[Address, ...] = ()

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may really be held: short enough that a live leader never seems dead."""
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 3, self.request_timeout_ms // 3)

    @property
    def fetch_request_timeout_ms(self) -> int:
        """A fetch unanswered for so long is lost, and repeated before the follower gives up its leader."""
        return min(self.request_timeout_ms, max(self.fetch_timeout_ms // 2, 1))

    @property
    def live_leader_ms(self) -> int:
        """A follower that has heard from its leader within this time refuses pre-votes.

        A healthy leader responds more often, as fetches are answered within :attr:`fetch_wait_ms`. When the
        first follower gives up a dead leader, that leader has been silent for longer: the others grant at
        once.
        """
        return self.fetch_timeout_ms // 2

    @property
    def begin_request_timeout_ms(self) -> int:
        """A leader's announcement is repeated before the voter that missed it starts an election."""
        return min(self.request_timeout_ms, max(self.election_timeout_ms // 2, 1))

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2
