"""The settings of a group member, and the listener through which it informs its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.lazy_dataclass import dataclass

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's names and defaults. :class:`ValueError` for a contradiction.

    ``session_timeout_ms`` must not exceed what the coordinator grants (in the consumer protocol that is the
    group's ``consumer.session.timeout.ms``, which a member is not told): after nine tenths of it without an
    answer a member no longer believes that it owns anything. ``heartbeat_interval_ms`` is for the classic
    protocol; in the consumer protocol the coordinator sets it. ``max_poll_interval_ms`` is the time a member
    has to revoke partitions. ``assignor``: ``range`` or ``cooperative-sticky`` in the classic protocol, the
    name of a server-side assignor (None: the coordinator's choice) in the consumer protocol. With a
    ``group_instance_id`` that another process still uses, a member of the consumer protocol waits for it.
    """

    group_id: str
    topics: tuple[str, ...]
    group_protocol: Literal["classic", "consumer"] = "classic"
    assignor: str | None = None
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000
    auto_offset_reset: Literal["earliest", "latest"] = "latest"

    def __post_init__(self) -> None:
        if self.group_protocol == "classic" and self.assignor not in (None, RANGE, COOPERATIVE_STICKY):
            raise ValueError(f"the classic protocol has no assignor {self.assignor!r} here")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat.interval.ms must be below session.timeout.ms")

    @property
    def lease_ms(self) -> int:
        """How long a member's ownership is valid after an answered request, counted from when it was sent.

        The coordinator removes a member after a session without a request, or when the member takes longer
        than the rebalance timeout to do what a later answer asked of it. Clocks may be off by 5 %.
        """
        return min(self.session_timeout_ms, self.max_poll_interval_ms) * 9 // 10

    @property
    def revocation_ms(self) -> int:
        """How long a member may take to revoke partitions."""
        return self.max_poll_interval_ms * 9 // 10


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """The member that a request names; in the classic protocol ``member_epoch`` is the generation."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None


class OwnershipListener(Protocol):
    """Called, in order, as the ownership that a member believes in changes.

    A partition is the member's from ``assigned`` until ``revoked`` returns, or until ``lost``.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The group takes these partitions back. They are the member's until this returns: commit their
        offsets here. ``poll`` returns no more of their records.
        """
        ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions may already be another member's: this one was fenced, or its lease ended."""
        ...

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None:
        """A request sent at ``sent_ms`` was answered without an error: the member was in the group then.

        In the classic protocol ``member_epoch`` is the generation.
        """
        ...
