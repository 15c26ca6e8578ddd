"""The story of a schedule of Raft cores, in words: the roles of the replicas, and how far they commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykraft.quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.quorum.invariants.history import ReplicaView
    from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
    from pykraft.jepsen_like.simulation.story import Story
    from pykraft.quorum.core.events import Event

_WORDS = {
    Leader: "leads",
    Candidate: "is a candidate and asks for votes",
    Prospective: "asks whether it would be elected",
    Unattached: "knows of no leader",
    Resigned: "led before, and resigns",
}


def describe_options(options: ClusterOptions) -> str:
    """The options that the seed drew, in one line."""
    voters = list(range(1, options.voters + 1))
    observers = list(range(options.voters + 1, options.voters + options.observers + 1))
    named = "by id alone, never changed" if options.static_voters else "in the log"
    if options.upgraded:
        named = "by id alone until an upgrade"
    return f"voters {voters}, named {named}; observers {observers or 'none'}"


class Narrator:
    """Writes the story of one simulated quorum."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._described: dict[int, str] = {}

    def log_event(self, now_ms: int, who: int | str, what: str) -> None:
        """``who``: a replica's id, or another part of the world."""
        self._story.log(now_ms * 1000, who if isinstance(who, str) else f"replica {who}", what)

    def acknowledged(self, now_ms: int) -> None:
        """A value of the client is committed and acknowledged."""
        self._story.count(now_ms * 1000, "client", "values acknowledged")

    def stepped(self, now_ms: int, replica: ReplicaView, event: Event) -> None:
        """The core has handled an event; its effects are still to come."""
        state = replica.core_state
        if self._story.has_messages:
            self.log_event(now_ms, replica.id, f"handles {event}")
        role = state.role
        words = f"follows {role.leader_id}" if isinstance(role, Follower) else _WORDS[type(role)]
        description = f"{words}, epoch {state.epoch}"
        if self._described.get(replica.id) != description:
            self._described[replica.id] = description
            self.log_event(
                now_ms,
                replica.id,
                f"{description} (log ends at {state.log.end_offset}, committed below {state.high_watermark})",
            )
