"""The input and output of an assignor.

An assignor gets subscriptions, the previous target and partition counts, but no epochs or current ownership,
which are left to reconciliation. It must be deterministic, assign every partition of a subscribed topic to
exactly one subscriber, and move as few partitions as possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pykraft.group_coordinator.state.records import Partitions
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass


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
        """The partitions of every member (possibly none). ``partition_counts`` has the topics that exist."""
        ...
