"""The lease that the controller grants a broker, and what a coordinator may decide without it.

The lease guarantees that no controller fences the broker before it ends
(:mod:`pykraft.metadata_log.controller.leadership`). After that another coordinator may lead the partition.

**Decisions with records** may still be made. They are appended, and answered when the high watermark has
passed them. For that every in-sync replica must have copied them from this leader, and a later leader is
one of those replicas, so it knows the records. If another broker leads already, the replicas follow it, the
records are never committed, and the waiting request fails after the write timeout.

**Everything else waits** until the lease is renewed, or is refused with COORDINATOR_NOT_AVAILABLE: an answer
may be out of date, an error may be wrong, and no record would tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from pykraft.coordinator.result import Result
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

S = TypeVar("S")
R = TypeVar("R", bound=Result)


class Lease(Protocol):
    """The lease that the controller has granted this broker."""

    def lease_valid(self, now_ms: int) -> bool:
        """Whether no other broker can have taken over yet. ``now_ms`` is monotonic."""
        ...

    def expired_ms(self, now_ms: int) -> int | None:
        """How long ago the lease expired; 0 while it holds, None for a broker that is fenced."""
        ...


class EndlessLease:
    """The lease of a coordinator that no other broker can replace."""

    def lease_valid(self, now_ms: int) -> bool:
        return True

    def expired_ms(self, now_ms: int) -> int | None:
        return 0


class MustWaitForLeaseError(Exception):
    """The decision would change something without a record."""


def only_with_records(decide: Callable[[S], R]) -> Callable[[S], R]:
    """``decide``; without records :class:`KafkaError` or :class:`MustWaitForLeaseError` is raised."""

    def checked(state: S) -> R:
        try:
            result = decide(state)
        except KafkaError:
            raise lease_is_over() from None
        if result.records:
            return result
        raise MustWaitForLeaseError if result.moves_others else lease_is_over()

    return checked


def lease_is_over() -> KafkaError:
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has lost contact with the controller."
    )
