"""The deadlines of sessions and rebalances: which have expired, and when the next one will.

Soft state, deliberately not in the log: after a failover every member gets a full session again. The time is
an argument; callers pass the monotonic clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


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


class TimerKey(NamedTuple):
    """``member_id`` is empty for timers of a whole group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class SetTimer(NamedTuple):
    """Start or restart a timer that expires ``delay_ms`` from now and then returns ``epoch``.

    With ``keep_running`` a running timer is not restarted.
    """

    key: TimerKey
    delay_ms: int
    epoch: int = 0
    keep_running: bool = False


class CancelTimer(NamedTuple):
    key: TimerKey


TimerChange = SetTimer | CancelTimer


CLASSIC_MEMBER_TIMERS = (TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)
"""What only those members of a consumer group have that speak the classic protocol."""

MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REBALANCE, *CLASSIC_MEMBER_TIMERS)
"""All timers of a member of a consumer group."""


def cancel_member_timers(
    group_id: str, member_id: str, kinds: Iterable[TimerKind] = MEMBER_TIMERS
) -> list[TimerChange]:
    return [CancelTimer(TimerKey(kind, group_id, member_id)) for kind in kinds]


_MOST_STALE = 64
"""A heap with so few stale entries is not cleaned up."""

_CLEANED_AT_ONCE = 4
"""Entries that are cleaned up with each one that becomes stale or new: fewer would let them pile up."""

_MOVED_AT_ONCE = 200
"""Entries that are looked at in one search for the next timer: half a millisecond."""


class _Timer(NamedTuple):
    deadline_ms: int
    epoch: int
    entry_ms: int
    """The time of its entry in a heap, not after the deadline. Other entries of its key are stale."""


class Deadlines:
    """A heap with lazy deletion: moving a deadline later, the common case, costs one dictionary write.

    Every timer has one entry, which is moved when it reaches the top. Once most entries are stale, the heap
    is put aside and its entries are moved to a new one, a few with each change, so that no change takes
    long. (The last entry of a heap can be taken off without disturbing its order.)
    """

    def __init__(self) -> None:
        self._timers: dict[TimerKey, _Timer] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        self._put_aside: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._timers

    @property
    def entries(self) -> int:
        """The number of entries, stale ones too: what the memory of this depends on."""
        return len(self._heap) + len(self._put_aside)

    def apply(self, change: TimerChange, now_ms: int) -> None:
        match change:
            case SetTimer(key, delay_ms, epoch, keep_running):
                if not (keep_running and key in self._timers):
                    self.set(key, now_ms + delay_ms, epoch)
            case CancelTimer(key):
                if self._timers.pop(key, None) is not None:
                    self._clean_up()

    def set(self, key: TimerKey, deadline_ms: int, epoch: int = 0) -> None:
        old = self._timers.get(key)
        if old is not None and old.entry_ms <= deadline_ms:
            self._timers[key] = _Timer(deadline_ms, epoch, old.entry_ms)
            return
        self._timers[key] = _Timer(deadline_ms, epoch, deadline_ms)
        heapq.heappush(self._heap, (deadline_ms, key))
        self._clean_up()

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None. May drop stale entries.

        Where many entries have to be moved first it is a time before that: a sleeper until then asks
        again.
        """
        heap, _ = self._search()
        return heap[0][0] if heap else None

    def pop_expired(self, now_ms: int, limit: int) -> list[tuple[TimerKey, int]]:
        """Remove and return timers whose deadline has passed, earliest first, with their epochs.

        At most ``limit`` of them; the others stay due.
        """
        expired: list[tuple[TimerKey, int]] = []
        while len(expired) < limit:
            heap, is_found = self._search()
            if not is_found or heap[0][0] > now_ms:
                break
            _, key = heapq.heappop(heap)
            expired.append((key, self._timers.pop(key).epoch))
        return expired

    def clear(self) -> None:
        self._timers.clear()
        self._heap.clear()
        self._put_aside.clear()

    def _search(self) -> tuple[list[tuple[int, TimerKey]], bool]:
        """The heap with the earliest entry, and whether that is a deadline.

        If not, there is no deadline, or very many entries have to be moved first.
        """
        for _ in range(_MOVED_AT_ONCE):
            heap = self._earliest_heap()
            if not heap:
                return heap, False
            when_ms, key = heap[0]
            timer = self._timers.get(key)
            if timer is None or timer.entry_ms != when_ms:
                heapq.heappop(heap)
            elif timer.deadline_ms > when_ms:
                heapq.heapreplace(heap, (timer.deadline_ms, key))
                self._timers[key] = _Timer(timer.deadline_ms, timer.epoch, timer.deadline_ms)
            else:
                return heap, True
        return self._earliest_heap(), False

    def _earliest_heap(self) -> list[tuple[int, TimerKey]]:
        heap, aside = self._heap, self._put_aside
        return aside if aside and (not heap or aside[0] < heap[0]) else heap

    def _clean_up(self) -> None:
        """Do a part of dropping stale entries, if there are too many."""
        if not self._put_aside and len(self._heap) > 2 * len(self._timers) + _MOST_STALE:
            self._put_aside, self._heap = self._heap, []
        for _ in range(min(_CLEANED_AT_ONCE, len(self._put_aside))):
            when_ms, key = self._put_aside.pop()
            timer = self._timers.get(key)
            if timer is not None and timer.entry_ms == when_ms:
                heapq.heappush(self._heap, (timer.deadline_ms, key))
                self._timers[key] = _Timer(timer.deadline_ms, timer.epoch, timer.deadline_ms)
