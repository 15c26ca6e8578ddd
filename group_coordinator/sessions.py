"""The deadlines of sessions and rebalances: which have expired, and when the next one will.

Soft state, deliberately not in the log: after a failover every member gets a full session again. The time is
an argument; callers pass the monotonic clock.
"""

from __future__ import annotations

import heapq
from enum import IntEnum

from pykraft.lazy_dataclass import dataclass


class TimerKind(IntEnum):
    SESSION = 1
    """A member of either protocol has sent no heartbeat in time."""
    REBALANCE = 2
    """A consumer member has not revoked its partitions in time."""
    JOIN_PHASE = 3
    """The time in which the members of a classic group must join is over."""
    SYNC_PHASE = 4
    """The time in which the members of a classic group must fetch their assignment is over."""
    PENDING_MEMBER = 5
    """A classic client was given a member id and has not joined with it in time."""
    MEMBER_JOIN = 6
    """A classic member of a consumer group was told to join again and has not done so in time."""
    MEMBER_SYNC = 7
    """A classic member of a consumer group has joined and not fetched its assignment in time."""


@dataclass(frozen=True, slots=True, order=True)
class TimerKey:
    """``member_id`` is empty for timers of a whole group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Start or restart a timer that expires ``delay_ms`` from now and then returns ``epoch``.

    With ``keep_running`` a running timer is not restarted.
    """

    key: TimerKey
    delay_ms: int
    epoch: int = 0
    keep_running: bool = False


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: TimerKey


TimerChange = SetTimer | CancelTimer


def cancel_member_timers(group_id: str, member_id: str) -> list[TimerChange]:
    """Cancel all timers of a member of a consumer group."""
    kinds = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)
    return [CancelTimer(TimerKey(kind, group_id, member_id)) for kind in kinds]


def cancel_classic_timers(group_id: str, member_id: str) -> list[TimerChange]:
    """Cancel those timers that only a member with the classic protocol has."""
    kinds = (TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)
    return [CancelTimer(TimerKey(kind, group_id, member_id)) for kind in kinds]


class Deadlines:
    """A heap with lazy deletion: moving a deadline later, the common case, costs one dictionary write."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, tuple[int, int]] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def apply(self, change: TimerChange, now_ms: int) -> None:
        match change:
            case SetTimer(key, delay_ms, epoch, keep_running):
                if not (keep_running and key in self._deadlines):
                    self.set(key, now_ms + delay_ms, epoch)
            case CancelTimer(key):
                self._deadlines.pop(key, None)

    def set(self, key: TimerKey, deadline_ms: int, epoch: int = 0) -> None:
        old = self._deadlines.get(key)
        self._deadlines[key] = (deadline_ms, epoch)
        # A heap entry that is due before the deadline is moved when it reaches the top.
        if old is None or deadline_ms < old[0]:
            heapq.heappush(self._heap, (deadline_ms, key))

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None. May drop stale entries."""
        while self._heap:
            when_ms, key = self._heap[0]
            current = self._deadlines.get(key)
            if current is None:
                heapq.heappop(self._heap)
            elif current[0] > when_ms:
                heapq.heapreplace(self._heap, (current[0], key))
            else:
                return when_ms
        return None

    def pop_expired(self, now_ms: int, limit: int) -> list[tuple[TimerKey, int]]:
        """Remove and return timers whose deadline has passed, earliest first, with their epochs.

        At most ``limit`` of them; the others stay due.
        """
        expired: list[tuple[TimerKey, int]] = []
        while (
            len(expired) < limit
            and (deadline_ms := self.next_deadline_ms()) is not None
            and deadline_ms <= now_ms
        ):
            _, key = heapq.heappop(self._heap)
            _, epoch = self._deadlines.pop(key)
            expired.append((key, epoch))
        return expired

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
