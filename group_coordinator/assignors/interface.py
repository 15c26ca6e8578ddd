"""What an assignor is given and what it gives back.

An assignor sees subscriptions, the previous target and partition counts; nothing about epochs or who owns
what right now (reconciliation takes care of that). It must be deterministic, give every partition of a
subscribed topic to exactly one subscriber, and move as little as it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pykraft.group_coordinator.records import Partitions
from pykraft.kafka_protocol.ids import Uuid


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """``current`` is the member's part of the previous target assignment."""

    subscribed: frozenset[Uuid]
    current: Partitions
    instance_id: str | None = None


class Assignor(Protocol):
    def __call__(
        self, members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
    ) -> dict[str, Partitions]:
        """Partitions for every member (possibly none). ``partition_counts`` names the topics that exist."""
        ...
